"""What LEAD tells of a run beside its losses, under its tags `debug/…`: sizes, position, memory, loading time.

Called by `hooks` on rank 0 where scalars are due. LEAD's times of metas and sensors alone have no counterpart: metas
are columns in memory here, and all of a sample's loading time is that of its sensors.
"""

from collections.abc import Mapping

import torch

from lead_trainer.engine.epoch_plan import EpochPlan
from lead_trainer.engine.state import TrainState
from lead_trainer.recipes.recipe import Batch, StageShape

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
    batch: Batch,
) -> dict[str, float]:
    """Returns the scalars of one step; `loading` is what the loader's stages took a batch (`data/…_ms`)."""
    total = epochs * plan.steps
    memory = torch.cuda.max_memory_allocated() / GIB if torch.cuda.is_available() else 0.0
    values = {
        "num_gpu": processes,  # one process a GPU, or a CPU's share
        "model_size": sum(parameter.numel() for parameter in state.model.parameters() if parameter.requires_grad),
        "dataset_size": samples,
        "dataloader_size": plan.batches,
        "batch_size_per_gpu": plan.rank_batch,
        "allocated_cpus": shape.loader_threads,
        "num_gradient_steps": total,  # of the whole stage
        "finished_percentage": state.step / total,  # LEAD's name, but from 0 to 1
        "steps_left": total - state.step,
        "max_gpu_mem": memory,  # GiB
    }
    if "data/load_ms" in loading:
        values["average_loading_time"] = loading["data/load_ms"] / 1000 / plan.rank_batch  # seconds a sample
    if "source_dataset" in batch:
        values["source_dataset"] = batch["source_dataset"].double().mean()
    return {f"debug/{name}": float(value) for name, value in values.items()}
