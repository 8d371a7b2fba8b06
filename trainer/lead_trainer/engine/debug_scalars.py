"""What LEAD tells of a run beside its losses, under its tags `debug/…`: sizes, position, memory, loading time.

Called by `hooks` on rank 0 where scalars are due. LEAD's times of metas and sensors alone have no counterpart: metas
are columns in memory here.
"""

from collections.abc import Mapping

import torch

from lead_trainer.engine.epoch_plan import EpochPlan
from lead_trainer.engine.state import TrainState
from lead_trainer.recipes.recipe import StageShape

GIB = 2**30


def debug_scalars(
    state: TrainState,
    shape: StageShape,
    plan: EpochPlan,
    *,
    epochs: int,
    samples: int,
    processes: int,
    loading: Mapping[str, float],
) -> dict[str, float]:
    """Returns the scalars of one step; `loading` is what the loader's stages took a batch (`data/…_ms`)."""
    memory = torch.cuda.max_memory_allocated() / GIB if torch.cuda.is_available() else 0.0
    values = {
        "num_gpu": processes,  # one process a GPU, or a CPU's share
        "model_size": sum(parameter.numel() for parameter in state.model.parameters()),
        "dataset_size": samples,
        "dataloader_size": plan.batches,
        "batch_size_per_gpu": plan.rank_batch,
        "allocated_cpus": shape.loader_threads,
        "steps_left": epochs * plan.steps - state.step,
        "max_gpu_mem": memory,  # GiB
    }
    if "data/load_ms" in loading:
        values["average_loading_time"] = loading["data/load_ms"] / 1000 / plan.rank_batch  # seconds a sample
    return {f"debug/{name}": float(value) for name, value in values.items()}
