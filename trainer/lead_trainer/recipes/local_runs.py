"""What a recipe may say more for runs without a cluster, where one command builds the cache and trains.

Asked by `lead train`, `lead cache` and `lead buckets`; a recipe that says nothing reads `carla_root` and spells keys as
its config does.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from lead_trainer.errors import BadConfig
from lead_trainer.recipes.recipe import Scan


@runtime_checkable
class ReadsTree(Protocol):
    """A recipe that knows where its raw tree lies on this machine."""

    def source_root(self, config: Any) -> str | None:
        """Returns the raw tree's folder, None where the config needs no data; raises BadConfig where it is not set."""

    def collections(self, config: Any) -> Sequence[str]:
        """Returns the collections that a run reads."""


@runtime_checkable
class KnowsLayout(Protocol):
    """A recipe that recognises another folder than the one its raw tree begins with."""

    def layout_fault(self, config: Any, root: Path) -> str:
        """Returns what an existing folder lacks of a raw tree and what to do, empty for nothing."""


@runtime_checkable
class SharesCaches(Protocol):
    """A recipe whose stages read the same samples in other collections, so that one cache serves them all."""

    def cache_collections(self, config: Any) -> Sequence[str]:
        """Returns what a cache on this machine holds: the collections of every stage over this tree."""

    def cache_values(self, config: Any, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the recipe's keys that such a cache is built with, of a run's, so that stages share one."""


@runtime_checkable
class MixesTrees(Protocol):
    """A recipe whose runs may read several raw trees, each with a cache of its own."""

    def datasets(self, config: Any) -> Mapping[str, Mapping[str, Any]]:
        """Returns the keys that make the config of each tree's cache out of the run's, by the tree's name."""


@runtime_checkable
class WritesBuckets(Protocol):
    """A recipe whose collections another program loads from files beside the raw tree."""

    def bucket_files_fault(self, config: Any, collections: Sequence[str]) -> str:
        """Returns why that program reads no file of these collections with this config, empty where it does."""

    def write_buckets(self, config: Any, scan: Scan) -> Iterable[Path]:
        """Writes a file for each collection of a scan, as that program names it; yields where they are."""


@runtime_checkable
class WarnsAtStart(Protocol):
    """A recipe that knows values which are allowed and seldom meant."""

    def warnings(self, config: Any) -> Sequence[str]:
        """Returns a sentence for each thing to know before a run begins; naming the key and what to do."""


@runtime_checkable
class NamesNextCommand(Protocol):
    """A recipe that knows what is usually done with weights next."""

    def next_command(self, config: Any, weights: Path, logdir: Path, preset: str = "") -> str:
        """Returns the command for a run's weights, after what it is for: `evaluate: lead evaluate FILE`.

        It can be pasted as it is: it has every key of the run that the next one needs and does not take over.
        """


@runtime_checkable
class WritesOut(Protocol):
    """A recipe with words that stand for a whole mapping."""

    def written_out(self, said: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns what one source said with the mapping in each word's place, so that other sources merge with it."""


@runtime_checkable
class Respells(Protocol):
    """A recipe with spellings of its own for the trainer's keys."""

    def respelled(self, said: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns what a user said under the trainer's names; raises BadConfig for a value that cannot be kept."""


def source_root(recipe: Any, config: Any) -> str | None:
    """Returns the folder of a run's raw tree, None where it reads none."""
    if isinstance(recipe, ReadsTree):
        return recipe.source_root(config)
    return None if recipe.preparation is None else str(config.carla_root)


def source_key(config: Any, root: str) -> str:
    """Returns the key that names the folder of a raw tree, empty where none does."""
    keys = [key for key in type(config).model_fields if key.endswith("_root") and getattr(config, key) == root]
    return keys[0] if keys else ""


def refuse_missing_source(recipe: Any, config: Any) -> None:
    """Raises BadConfig naming the key of a raw tree that does not exist, or is another folder of the tree."""
    root = source_root(recipe, config)
    if root is None:
        return
    key = source_key(config, root)
    named = f"{key}: " if key else ""
    if not Path(root).is_dir():
        remedy = f"set {key}=DIR to the folder of the raw data" if key else "correct the path"
        raise BadConfig(f"{named}folder {root} does not exist; {remedy}")
    if isinstance(recipe, KnowsLayout) and (fault := recipe.layout_fault(config, Path(root))):
        raise BadConfig(f"{named}{fault}")


def collections_of(recipe: Any, config: Any) -> list[str]:
    """Returns the collections a run reads."""
    return list(recipe.collections(config)) if isinstance(recipe, ReadsTree) else [recipe.shape(config).collection]


def cache_values(recipe: Any, config: Any, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the recipe's keys that a run's cache is built with."""
    return recipe.cache_values(config, values) if isinstance(recipe, SharesCaches) else values


def cache_collections(recipe: Any, config: Any) -> list[str]:
    """Returns the collections that a run's cache is built with; it holds those of the run."""
    if isinstance(recipe, SharesCaches):
        return list(recipe.cache_collections(config))
    return collections_of(recipe, config)
