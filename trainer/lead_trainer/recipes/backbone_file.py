"""Where the image backbone's first weights come from: a file on this machine, or an object of the store; no download.

`backbone_weights=store:weights/resnet34.safetensors` names an object below LEAD_STORE_URL, in a pod below the storage
profile; nothing but `weights/` is read, and what is there is never shown. In a pod `engine.pod_config` refuses files.
Whatever a store holds may have been replaced, so its digest must be given; a file's may be. Every recipe with such a
key reads it here.
"""

import hashlib
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch

from lead_protocol.job_access import weights_access
from lead_protocol.store.object_store import ObjectNotFound
from lead_trainer.blocks.stages import read_weights
from lead_trainer.errors import BadConfig
from lead_trainer.storage import open_store

STORE_MARK, FOLDER = "store:", "weights/"
MAX_BYTES = 4 << 30


def backbone_state(
    source: str, sha256: str, environ: Mapping[str, str], *, key: str = "backbone_weights"
) -> dict[str, torch.Tensor]:
    """Returns the state dict of a file or object; raises BadConfig naming `key` when it is absent, other or no weights.

    `key` is what names the source in a config; the digest's is called `<key>_sha256`.
    """
    if not source.startswith(STORE_MARK):
        path = Path(source)
        if sha256 and path.is_file():
            _refuse_other(source, path.read_bytes(), sha256, key)
        return read_weights(path, key)
    name = source.removeprefix(STORE_MARK)
    if not name.startswith(FOLDER):
        raise BadConfig(f"{key}: found {source}, expected an object of {STORE_MARK}{FOLDER}; put it there")
    if not sha256:
        raise BadConfig(f"{key}_sha256: not set, but {source} may be replaced; give the digest of its bytes")
    try:
        data = open_store(environ, weights_access()).get(name, max_bytes=MAX_BYTES)
    except ObjectNotFound as error:
        raise BadConfig(f"{key}: the store has no object {name}; put it there: {error}") from error
    _refuse_other(source, data, sha256, key)
    with tempfile.TemporaryDirectory(prefix="lead-backbone-") as folder:
        path = Path(folder) / Path(name).name
        path.write_bytes(data)
        return read_weights(path, key)


def _refuse_other(source: str, data: bytes, sha256: str, key: str) -> None:
    if hashlib.sha256(data).hexdigest() != sha256.lower():  # its digest is not reported: it may be a secret
        raise BadConfig(
            f"{key}_sha256: the bytes of {source} have another digest than {sha256}; correct it or restore the file"
        )
