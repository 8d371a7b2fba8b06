"""Arrays in `.npz` files: read without pickle, checked against a schema, written whole or not at all."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lead_trainer.errors import BadData
from lead_trainer.recipes.npz_arrays import npz_arrays

Array = npt.NDArray[Any]
Schema = Mapping[str, tuple[str, tuple[int | None, ...]]]  # kind of dtype ("f4", "i8", "u1", "U") and shape, by name


def read_npz(data: bytes, path: str, schema: Schema) -> dict[str, Array]:
    """Returns the arrays that `schema` names; raises BadData naming file, array, what was found and expected.

    `None` in a shape is any length, but the first axes that are `None` must agree over all arrays.
    """
    try:
        with npz_arrays(data) as stored:
            missing = [name for name in schema if name not in stored.files]
            if missing:
                raise BadData(f"file {path} lacks the array {missing[0]!r}; it has {', '.join(stored.files)}")
            arrays = {name: stored[name] for name in schema}
    except ValueError as error:
        raise BadData(f"file {path} cannot be read as .npz without pickled objects: {error}; write it again") from error
    for name, (kind, shape) in schema.items():
        _check(path, name, arrays[name], kind, shape)
    lengths = {len(arrays[name]) for name, (_, shape) in schema.items() if shape and shape[0] is None}
    if len(lengths) > 1:
        raise BadData(f"file {path}: its arrays have {sorted(lengths)} rows, expected one number; write it again")
    return arrays


def _check(path: str, name: str, array: Array, kind: str, shape: tuple[int | None, ...]) -> None:
    right = array.dtype.kind == "U" if kind == "U" else array.dtype == np.dtype(kind)
    fits = array.ndim == len(shape) and all(want in (None, have) for want, have in zip(shape, array.shape, strict=True))
    if not right or not fits:
        expected = "x".join("N" if side is None else str(side) for side in shape) or "one value"
        raise BadData(
            f"file {path}: array {name} is {array.dtype} of shape {array.shape}, expected {kind} of {expected}"
        )


def write_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """Writes an uncompressed file beside its name and renames it, so that a name is never half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with part.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
