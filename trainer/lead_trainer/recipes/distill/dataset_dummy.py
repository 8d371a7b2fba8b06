"""Samples without any data: noise for pictures, and labels of the scripted teacher for made-up pasts."""

import numpy as np
import numpy.typing as npt

from lead_trainer.contract.samples import Sample, Samples
from lead_trainer.data.sample_order import hash64
from lead_trainer.recipes.distill.clip_stages import label_arrays
from lead_trainer.recipes.distill.config import DistillConfig
from lead_trainer.recipes.distill.dataset import dummy_pictures, label_entries
from lead_trainer.recipes.distill.drawn_drives import driven_history
from lead_trainer.recipes.distill.ingest.frame_files import Clip, Frames
from lead_trainer.recipes.distill.ingest.teacher import Question, ScriptedTeacher

COUNTS = {"train": 64, "val": 16}


class DummySamples(Samples):
    """A few made-up drives; each a pure function of (split, index, config.seed)."""

    def __init__(self, config: DistillConfig, split: str) -> None:
        self._config, self._split = config, split

    def __len__(self) -> int:
        """Number of drives."""
        return COUNTS[self._split]

    def epoch_draw(self, epoch: int) -> npt.NDArray[np.int64]:
        """Returns every drive once."""
        return np.arange(len(self), dtype=np.int64)

    def load(self, index: int, epoch: int) -> Sample:
        """Returns one drive."""
        number = index + COUNTS["train"] * (self._split == "val")
        history = driven_history(int(hash64(self._config.seed, number)))
        nothing = Frames(Clip("dummy", number), np.empty((0,), np.uint8), np.empty((0,), np.int64))
        (label,) = ScriptedTeacher().label([Question(nothing.clip, nothing, history)])
        return {
            "frames": dummy_pictures(self._config.seed, number, self._config.resolution),
            **label_entries(label_arrays(history, label)),
        }
