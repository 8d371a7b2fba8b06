"""What one checkpoint holds: the state after one step, as it is in use or as a copy in host memory.

Torch's stager makes the copy: tensors that share memory still do, so the files have the same bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

from lead_trainer.engine.step.state import LoopState, TrainState

MODEL = "model"
Parts = Mapping[str, Any]  # what torch saves, by part of a checkpoint


@dataclass(frozen=True)
class Snapshot:
    """The state after one step, and what its manifest holds of it."""

    parts: Parts
    loop: LoopState
    metrics: Mapping[str, float]
    final: bool = False

    @property
    def weights(self) -> Mapping[str, torch.Tensor]:
        """Every parameter and buffer of the model by name, in order."""
        weights: Mapping[str, torch.Tensor] = self.parts[MODEL]
        return weights

    def on_host(self, part: str) -> Any:
        """Returns a part in host memory, so that no file names a GPU; what is there already is not copied."""
        on_gpu = any(tensor.is_cuda for tensor in self.weights.values())
        return HostCopies(torch.device("cpu")).of({part: self.parts[part]})[part] if on_gpu else self.parts[part]


def parts_of(state: TrainState) -> Parts:
    """Returns the parts of a checkpoint that hold tensors; no tensor is copied."""
    parts: dict[str, Any] = {
        MODEL: state.model.state_dict(),
        **state.optimizers.state_dicts(),
        "scheduler": state.schedule_state(),
        "scaler": state.scaler.state_dict(),
    }
    if state.average is not None:
        parts["ema"] = state.average.model.state_dict()
    if state.clipper.has_history:
        parts["clipper"] = state.clipper.state_dict()
    return parts


class HostCopies:
    """Host memory for one copy of a state, pinned where the state is on a GPU; kept from copy to copy."""

    def __init__(self, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self._stager = DefaultStager(
            StagingOptions(
                use_pinned_memory=on_gpu,
                use_shared_memory=False,
                use_async_staging=False,
                use_non_blocking_copy=on_gpu,
            )
        )

    def of(self, parts: Parts) -> Parts:
        """Returns `parts` as they are now; the copy made before is overwritten."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # memory limits a copy, and threads that wait for each other on busy cores delay it
        try:
            copied: Parts = self._stager.stage(dict(parts))  # type: ignore[assignment]  # a Future if asked for one
        finally:
            torch.set_num_threads(threads)
        return copied

    def close(self) -> None:
        """Lets go of the memory, once nobody uses the copy."""
        self._stager.close()
