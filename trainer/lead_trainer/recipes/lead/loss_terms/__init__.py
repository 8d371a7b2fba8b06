"""The loss terms of the recipe, one file a head; each function returns raw, unweighted scalars."""
