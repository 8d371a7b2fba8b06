"""LEAD's table of GPU names: which train in bf16 and which in fp32, for `precision=lead`.

Called by the config. `precision=auto` asks the device's capability instead, which knows every GPU.
"""

from lead_trainer.errors import BadConfig

# lead/training/config_training.py, gpu_name and use_mixed_precision_training
PRECISION: dict[str, str] = {
    "a100": "bf16",
    "l40s": "bf16",
    "a4000": "fp32",
    "gtx1080ti": "fp32",
    "rtx2080ti": "fp32",
    "rtx3080": "fp32",
}


def lead_precision(name: str) -> str:
    """Returns bf16 or fp32 for a GPU's name as the driver gives it; no name is a CPU; raises BadConfig for others."""
    plain = "".join(character for character in name.lower() if character.isalnum())
    if not plain:
        return "fp32"
    for known, precision in PRECISION.items():
        if known in plain:
            return precision
    raise BadConfig(
        f"gpu_name: found {name!r}, which is not in LEAD's table ({', '.join(sorted(PRECISION))}); "
        "set gpu_name to the one it is like, or precision to auto, fp32, bf16 or fp16"
    )


def own_gpu_name() -> str:
    """Returns the driver's name of this process's GPU, empty without one."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else ""
