"""The config values the clips' preparation reads: these and no others, and every one enters the cache's digest."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from lead_trainer.recipes.distill.config import DistillConfig


@dataclass(frozen=True)
class ClipKeys:
    """Names of files below the tree's root, where pictures and labels come from, and the pictures' side in pixels."""

    train_labels: str
    val_labels: str
    frames_dir: str
    ego_history_dir: str
    frame_source: str
    teacher: str
    resolution: int

    @classmethod
    def of(cls, config: DistillConfig) -> Self:
        """Takes the preparation's values out of a whole config."""
        return cls(**{field.name: getattr(config, field.name) for field in fields(cls)})

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Takes them from what a manifest holds."""
        return cls(**{field.name: values[field.name] for field in fields(cls)})

    def as_mapping(self) -> dict[str, Any]:
        """Returns the values by key."""
        return asdict(self)

    def labels(self, split: str) -> str:
        """Returns the labels' file of a split."""
        return {"train": self.train_labels, "val": self.val_labels}[split]
