"""The definition of a training system, without how it is trained: the lowest layer, under every package.

A recipe is one value, `recipe.Recipe`, behind an entry point of the group `lead.recipes`. Nothing in here imports
another room of the trainer, and nothing waits for torch until it trains.
"""
