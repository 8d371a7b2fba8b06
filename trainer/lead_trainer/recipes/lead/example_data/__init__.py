"""A small dataset in LEAD's exact format, made from a seed: for demonstrations and tests without CARLA.

`write_example_tree` fills a folder, `write_example_tree_to_store` an object store.
"""

from lead_trainer.recipes.lead.example_data.tree import (
    ExampleDataError,
    ExampleTreeSummary,
    write_example_tree,
    write_example_tree_to_store,
)

__all__ = ["ExampleDataError", "ExampleTreeSummary", "write_example_tree", "write_example_tree_to_store"]
