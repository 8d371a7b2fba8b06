"""What a training system says about itself, and nothing of how it is trained: the ground floor under every room.

A recipe is one value, `recipe.Recipe`, behind an entry point of the group `lead.recipes`. Nothing in here imports
another room of the trainer, and nothing waits for torch until it trains.
"""
