"""`torch.compile` where the machine can, and a warning where it cannot.

torch compiles at the first call, and needs a C++ compiler on CPUs, Triton and a C compiler on GPUs. A small function is
compiled first, so that a machine without them is found at the start and not in the first step.
"""

import structlog
import torch

log = structlog.get_logger(__name__)


def compiled(model: torch.nn.Module, device: torch.device) -> torch.nn.Module:
    """Returns `model` compiled, or as it is where this machine cannot compile."""
    try:
        torch.compile(_probe)(torch.ones(2, device=device))
    except Exception as error:  # of the compiler, of its generated code, of a missing program
        log.warning("torch.compile is off: this machine cannot compile", error=str(error).splitlines()[0][:200])
        return model
    finally:
        torch.compiler.reset()
    result: torch.nn.Module = torch.compile(model)  # type: ignore[assignment]
    return result


def _probe(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) + 1.0
