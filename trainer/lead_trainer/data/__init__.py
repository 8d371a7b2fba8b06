"""From a raw dataset tree to batches, for any recipe: build a cache once, read it from everywhere, in a fixed order."""
