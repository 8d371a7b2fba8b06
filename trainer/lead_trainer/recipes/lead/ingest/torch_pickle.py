"""NavSim's feature files, gzip pickles of torch tensors and numpy arrays, read without running any of their code.

Tensors inside them carry torch's own storage format, which is opened with `weights_only`.
"""

import gzip
import io
import pickle  # only for the Unpickler below
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from lead_trainer.errors import BadData
from lead_trainer.recipes.lead.ingest.plain_pickle import ALLOWED

MAX_PLAIN_BYTES = 256 * 1024 * 1024


def _storage(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def _tensor(storage: Any, offset: int, size: Any, stride: Any, *_: Any) -> np.ndarray:
    rebuild: Callable[..., torch.Tensor] = torch._utils._rebuild_tensor_v2
    return np.array(rebuild(storage, offset, size, stride, False, {}).numpy())


def _latin1(text: str, encoding: str) -> bytes:
    """Rebuilds bytes that protocol 2 stored as text."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it stores bytes as {encoding}")
    return text.encode("latin1")


_TENSORS: dict[tuple[str, str], Any] = {
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch.storage", "_load_from_bytes"): _storage,
    ("_codecs", "encode"): _latin1,
}


class _TensorUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Returns an allowed constructor; raises UnpicklingError for every other name."""
        found = _TENSORS.get((module, name)) or ALLOWED.get((module, name))
        if found is None:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is neither plain data nor a tensor")
        return found


def read_gzip_pickle(data: bytes, path: str) -> Any:
    """Returns the object in a gzip pickle, tensors as arrays; raises BadData naming `path` for any other content."""
    try:
        return _TensorUnpickler(io.BytesIO(decompress(data))).load()
    except Exception as error:  # an unpickler may raise anything on hostile bytes
        raise BadData(f"file {path} is not a sound gzip pickle of tensors and plain data: {error}") from error


def decompress(data: bytes) -> bytes:
    """Returns the decompressed stream; raises ValueError beyond MAX_PLAIN_BYTES, an OSError or EOFError if damaged."""
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
        plain = stream.read(MAX_PLAIN_BYTES + 1)
    if len(plain) > MAX_PLAIN_BYTES:
        raise ValueError(f"it holds more than {MAX_PLAIN_BYTES} bytes")
    return plain
