"""Whether torch can use this machine's GPU: driver and library fit each other, and how much memory is free."""

from dataclasses import dataclass
from pathlib import Path

import torch

from lead_trainer.cpu_limit import cpu_share
from lead_trainer.local.preflight.finding import Finding

CHECK = "device"
DRIVER = Path("/proc/driver/nvidia/version")  # of the kernel module, in containers too
GIB = 2**30


@dataclass(frozen=True)
class Devices:
    """What is installed here."""

    driver: str  # first line of its version; empty: none
    torch_cuda: str  # version of CUDA that torch was built for; empty: for CPUs
    gpus: tuple[str, ...]  # that torch can use, with their memory
    cpus: float


def devices_here() -> Devices:
    """Returns the devices of this machine."""
    usable = torch.cuda.is_available()
    return Devices(
        driver=DRIVER.read_text(encoding="utf-8").splitlines()[0] if DRIVER.is_file() else "",
        torch_cuda=torch.version.cuda or "",
        gpus=tuple(_gpu(number) for number in range(torch.cuda.device_count())) if usable else (),
        cpus=cpu_share(),
    )


def device_finding(found: Devices) -> Finding:
    """Returns what is used, and failed where there is a GPU that torch cannot use."""
    if found.gpus:
        return Finding(CHECK, "ok", f"{'; '.join(found.gpus)}; torch for CUDA {found.torch_cuda}; {found.driver}")
    if found.driver and found.torch_cuda:
        return Finding(
            CHECK,
            "failed",
            f"torch for CUDA {found.torch_cuda} finds no usable GPU beside the driver ({found.driver}); update the "
            "driver, or give this process a GPU (CUDA_VISIBLE_DEVICES, --gpus of a container)",
        )
    if found.driver:
        return Finding(
            CHECK,
            "failed",
            f"there is a GPU driver ({found.driver}), but torch is built for CPUs; install one for CUDA",
        )
    return Finding(CHECK, "warning", f"no GPU: the run trains on {found.cpus:g} CPU cores")


def _gpu(number: int) -> str:
    free, total = torch.cuda.mem_get_info(number)
    return f"{torch.cuda.get_device_name(number)}, {free / GIB:.1f} of {total / GIB:.1f} GiB free"
