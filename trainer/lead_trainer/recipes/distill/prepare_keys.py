"""The config values the clips' preparation reads."""

from dataclasses import dataclass

from lead_trainer.recipes.distill.ingest.ego_history import MOTION_FOLDER
from lead_trainer.recipes.prepare_keys import DigestedKeys


@dataclass(frozen=True)
class ClipKeys(DigestedKeys):
    """Names of files below the tree's root, where pictures and labels come from, and the pictures' side in pixels."""

    train_labels: str
    val_labels: str
    frames_dir: str
    ego_history_dir: str
    frame_source: str
    teacher: str
    resolution: int

    @property
    def paths(self) -> tuple[str, ...]:
        """How the paths of everything begin that may be read; shards of labels are called after their file."""
        labels = (path.removesuffix(".npz") for path in (self.train_labels, self.val_labels))
        return (f"{self.frames_dir.strip('/')}/", f"{self.ego_history_dir.strip('/')}/", MOTION_FOLDER, *labels)

    def labels(self, split: str) -> str:
        """Returns the labels' file of a split."""
        return {"train": self.train_labels, "val": self.val_labels}[split]
