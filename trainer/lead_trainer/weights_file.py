"""Files of weights that people name: read without running any code in them, one kind of error whatever is wrong."""

import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from lead_trainer.errors import BadConfig

_SHOWN = 300  # characters of a library's message


def read_weights_file(path: Path, key: str) -> Any:
    """Returns what a `.safetensors` or torch file holds, on the CPU; raises BadConfig naming `key` if it is damaged."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        _refuse_compressed(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch promises no classes: a damaged file raises whatever its bytes lead it to
        raise BadConfig(
            f"{key}: {path} is no file of weights: {type(error).__name__}: {str(error)[:_SHOWN]}"
        ) from error


def _refuse_compressed(path: Path) -> None:
    """Raises ValueError for a zip file whose members are larger than the file: torch stores them as they are."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as stored:
            size = sum(member.file_size for member in stored.infolist())
        if size > path.stat().st_size:
            raise ValueError(f"it would unpack to {size} bytes")
