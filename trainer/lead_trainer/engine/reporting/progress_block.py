"""Where a run is, in a few lines for a person: epoch, step, losses, rate, memory and the best so far."""

import torch

from lead_trainer.contract.step import StepOutput
from lead_trainer.engine.step.state import TrainState

_BAR = 24


def progress_block(state: TrainState, output: StepOutput, step_s: float, epochs: int, steps: int, stage: str) -> str:
    """Returns the block after one step; `stage` names the part of the training, empty where it has none.

    The line on a GPU is there only where there is one.
    """
    done = state.step_in_epoch * _BAR // max(steps, 1)
    values = {"loss": output.loss, **output.parts, **output.metrics}
    lines = [
        f"epoch {state.epoch + 1}/{epochs}  [{'#' * done}{'.' * (_BAR - done)}]  step {state.step_in_epoch}/{steps}"
        + (f"  stage {stage}" if stage else ""),
        "  ".join(f"{name} {float(value.detach()):.4g}" for name, value in values.items()),
        "lr " + " ".join(f"{rate:.3g}" for rate in state.optimizers.rates()) + f"  {step_s:.3g} s/step"
        f"  skipped {state.skipped_steps}",
    ]
    if output.loss.device.type == "cuda":
        free, total = torch.cuda.mem_get_info(output.loss.device)
        lines.append(f"GPU memory {(total - free) / 2**30:.1f} of {total / 2**30:.1f} GiB")
    best = state.ranking.best
    if best.value is not None:
        lines.append(f"best {state.ranking.metric} {best.value:.4g} after epoch {best.epoch}")
    return "\n".join(lines)
