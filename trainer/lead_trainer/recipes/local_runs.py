"""The raw trees and caches of runs without a cluster, where one command builds the cache and trains.

Asked by `lead train`, `lead cache` and `lead buckets`; a recipe's part is in `contract.trees`.
"""

from pathlib import Path
from typing import Any

from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.results import returned
from lead_trainer.errors import BadConfig


def source_root(recipe: Recipe[Any], config: Any) -> str | None:
    """Returns the folder of a run's raw tree, None where it reads none; raises BadConfig if it is not set."""
    if recipe.trees.root is not None:
        root = returned(
            recipe.name, "trees.root", recipe.trees.root(config), str, Path, type(None), named="a folder, or None"
        )
        return None if root is None else str(root)
    if recipe.preparation is None:
        return None
    raise BadConfig(
        f"recipe {recipe.name} does not define the place of raw data on this machine (trees.root); build its cache "
        "in a cluster by a DatasetCache"
    )


def source_key(config: Any, root: str) -> str:
    """Returns the key that names the folder of a raw tree, empty where none does."""
    keys = [key for key in type(config).model_fields if key.endswith("_root") and getattr(config, key) == root]
    return keys[0] if keys else ""


def refuse_missing_source(recipe: Recipe[Any], config: Any) -> None:
    """Raises BadConfig naming the key of a raw tree that does not exist, or is another folder of the tree."""
    root = source_root(recipe, config)
    if root is None:
        return
    key = source_key(config, root)
    named = f"{key}: " if key else ""
    if not Path(root).is_dir():
        remedy = f"set {key}=DIR to the folder of the raw data" if key else "correct the path"
        raise BadConfig(f"{named}folder {root} does not exist; {remedy}")
    if fault := recipe.trees.layout_fault(config, Path(root)):
        raise BadConfig(f"{named}{fault}")


def collections_of(recipe: Recipe[Any], config: Any) -> list[str]:
    """Returns the collections a run reads."""
    if recipe.trees.collections is not None:
        return list(returned(recipe.name, "trees.collections", recipe.trees.collections(config), list, tuple))
    return list(recipe.required_preparation.default_collections)


def cache_collections(recipe: Recipe[Any], config: Any) -> list[str]:
    """Returns the collections that a run's cache is built with; it holds those of the run."""
    several = recipe.trees.cache_collections
    return collections_of(recipe, config) if several is None else list(several(config))
