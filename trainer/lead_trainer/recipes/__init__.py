"""The recipes: `recipe.load_recipe(name)` finds one by its entry point in the group `lead.recipes`.

Imports nothing, because writing example data, which lies in here, needs no torch.
"""
