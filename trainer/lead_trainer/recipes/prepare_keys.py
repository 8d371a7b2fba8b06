"""The config values a preparation reads: these and no others, because it is handed nothing else.

Every value enters the digest of the cache. Made from a whole config when a cache is built, and again when it is read,
to refuse a run whose values differ from the cache's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from lead_trainer.errors import BadConfig


@dataclass(frozen=True)
class DigestedKeys:
    """The keys of one preparation: a subclass with a field a key, called as in the recipe's config."""

    @classmethod
    def of(cls, config: Any) -> Self:
        """Takes the preparation's values out of a whole config."""
        return cls(**{field.name: getattr(config, field.name) for field in fields(cls)})

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Takes them from what a manifest holds; JSON turned tuples into lists."""
        plain = {field.name: values[field.name] for field in fields(cls)}
        return cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()})

    def as_mapping(self) -> dict[str, Any]:
        """Returns the values by key, as they enter the digest."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()}


def refuse_other_preparation(wanted: Mapping[str, Any], prepared: Mapping[str, Any]) -> None:
    """Raises BadConfig naming each key whose value a run wants to be another than the one its cache was built with."""
    unlike = {key: value for key, value in wanted.items() if prepared.get(key) != value}
    if unlike:
        listed = "; ".join(
            f"{key}: found {value!r}, the cache has {prepared.get(key)!r}" for key, value in unlike.items()
        )
        raise BadConfig(f"{listed}: build a cache with the run's values, or give the run the cache's")
