"""LEAD's two caches, done again as its code does them (commit 8bb1118): what they store, read, decode and write.

Persistent cache: one xz-compressed pickle a sample, of JPEG and PNG bytes, on shared storage. Session cache: one
`diskcache.Cache` with pickled values, shared by the workers, filled as samples are read; the meta is read from shared
storage for every sample of every epoch and written to the session cache each time. Only the LAZ and radar files are
left out, which it reads on a miss of both caches. Run in the bench's own environment.

Pickles are unpickled here because LEAD does it, and what it costs is measured. Nobody else can have written them: the
files come from `write_formats`, the entries of diskcache from this module, both below the bench's own folder on this
disk, and the trainer imports nothing of this.
"""

import lzma
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cv2
import diskcache
import numpy as np

from bench.data.samples import DEPTH_METRES, HEIGHT, LIDAR_MOST, OCCUPANCY_WINDOW, WIDTH, Sample

SESSION_BYTES = 768 * 2**30
META_NUMBERS = 900


def cache_entry(image: bytes, planes: Mapping[str, np.ndarray]) -> bytes:
    """Returns the bytes of a sample's file in the persistent cache."""
    payload = {name: _png(plane.astype(np.uint16) if name == "lidar" else plane) for name, plane in planes.items()}
    return lzma.compress(pickle.dumps({"image": image, **payload}))


def meta_entry(number: int) -> bytes:
    """Returns the bytes of a sample's meta file, as large as those of LEAD's expert."""
    values = np.random.default_rng(number).normal(size=META_NUMBERS).round(3)
    meta = {"frame": number, "past_and_future": [tuple(row) for row in values.reshape(-1, 3).tolist()]}
    return lzma.compress(pickle.dumps(meta))


class LeadSamples:
    """`__getitem__` of LEAD's data set with one of its caches; `compact` leaves out float work that a GPU can do."""

    def __init__(self, folder: Path, session: Path | None, count: int, *, compact: bool) -> None:
        self._folder, self._count, self._compact = folder, count, compact
        self._session = diskcache.Cache(str(session), size_limit=SESSION_BYTES) if session else None

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> Sample:
        self._meta(number)
        payload = self._payload(number)
        decoded = {name: _decoded(payload[name]) for name in ("semantic", "depth", "map", "lidar", "occupancy")}
        decoded["occupancy"] = np.ascontiguousarray(decoded["occupancy"][OCCUPANCY_WINDOW])
        picture = cv2.imdecode(np.frombuffer(payload["image"], np.uint8), cv2.IMREAD_COLOR)
        if self._compact:
            return {**decoded, "index": number, "picture": picture, "lidar": decoded["lidar"].astype(np.uint8)}
        depth = decoded["depth"].astype(np.float32) / np.float32(255) * DEPTH_METRES
        return {
            **decoded,
            "index": number,
            "rgb": np.transpose(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB), (2, 0, 1)),
            "depth": cv2.resize(depth, (WIDTH, HEIGHT), interpolation=cv2.INTER_LINEAR),
            "lidar": decoded["lidar"].astype(np.float32) / LIDAR_MOST,
        }

    def _meta(self, number: int) -> Any:
        with lzma.open(self._folder / "metas" / f"{number:06d}.pkl") as file:
            meta = pickle.load(file)
        if self._session is not None:
            self._session[("meta", number)] = meta
        return meta

    def _payload(self, number: int) -> dict[str, Any]:
        if self._session is not None and number in self._session:
            found: dict[str, Any] = self._session[number]
            return found
        with lzma.open(self._folder / "cache" / f"{number:06d}.pkl") as file:
            payload: dict[str, Any] = pickle.load(file)
        if self._session is not None:
            self._session[number] = payload
        return payload


def _png(plane: np.ndarray) -> np.ndarray:
    good, data = cv2.imencode(".png", np.ascontiguousarray(plane))
    if not good:
        raise RuntimeError("OpenCV wrote no PNG")
    return data


def _decoded(data: np.ndarray) -> np.ndarray:
    return np.asarray(cv2.imdecode(data, cv2.IMREAD_UNCHANGED))
