"""A recipe of nothing but bytes, a tree in memory, and a store that fails on purpose, to test the data path with."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lead_protocol.store.object_store import ObjectInfo, ObjectStore
from lead_trainer.contract.preparation import Preparation
from lead_trainer.contract.raw_data import Bucket, Collection, RouteVerdict, SampleKey, Scan, SourceFile
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.training_keys import TrainingKeys
from lead_trainer.errors import BadData


class Killed(BaseException):
    """The process died here."""


@dataclass
class MemoryTree:
    """A tree of `r<route>/<frame>` files."""

    contents: dict[str, bytes]

    def files(self) -> Sequence[SourceFile]:
        return [SourceFile(path, len(data), str(hash(data))) for path, data in sorted(self.contents.items())]

    def read(self, path: str) -> bytes:
        if path not in self.contents:
            raise BadData(f"file {path}: no such file; restore it")
        return self.contents[path]

    def local_file(self, path: str) -> Path:
        raise NotImplementedError("these files are in memory alone")


@dataclass
class BytesPreparation(Preparation):
    """Copies files into records; keeps every route whose name does not start with x."""

    version: str = "bytes/1"
    default_collections: tuple[str, ...] = ("all", "more")

    def config_keys(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"repeat": config.get("repeat", 1)}

    def scan(self, tree: Any, config: Mapping[str, Any], collections: Sequence[str]) -> Scan:
        files = tree.files()
        routes = sorted({file.path.split("/")[0] for file in files})
        size = {file.path: file.size for file in files}
        verdicts = tuple(
            RouteVerdict(r, not r.startswith("x"), "kept" if not r.startswith("x") else "bad", 1) for r in routes
        )
        samples = tuple(SampleKey(*_parts(file.path)) for file in files if not file.path.startswith("x"))
        bucket = Bucket("all", np.arange(len(samples)))
        return Scan(
            verdicts=verdicts,
            samples=samples,
            collections=tuple(Collection(name, (bucket,), (1.0,)) for name in sorted(set(collections))),
            estimated_bytes=np.array([size[f"{key.route}/{key.frame}"] for key in samples], np.int64),
        )

    def record(self, tree: Any, config: Mapping[str, Any], sample: SampleKey) -> Mapping[str, bytes]:
        return {"data": tree.read(f"{sample.route}/{sample.frame}") * config["repeat"]}

    def route_metas(self, tree: Any, config: Mapping[str, Any], route: str, frames: Sequence[int]) -> pa.Table:
        return pa.table(
            {"frame": pa.array(frames, pa.int32()), "sum": [sum(tree.read(f"{route}/{f}")) for f in frames]}
        )


def bytes_recipe(preparation: Preparation | None = None) -> Recipe[TrainingKeys]:
    """Returns a recipe that prepares bytes and trains nothing."""
    return replace(BYTES, preparation=preparation or BytesPreparation())


def _trains_nothing(*parts: Any) -> Any:
    raise AssertionError("the recipe of bytes prepares a cache and trains nothing")


BYTES = Recipe[TrainingKeys](
    name="bytes",
    config_model=TrainingKeys,
    samples=_trains_nothing,
    model=_trains_nothing,
    step=_trains_nothing,
    optimizer=_trains_nothing,
)


@dataclass
class FailingStore:
    """A store that raises `error` right after (or instead of) its n-th write; counts reads by key."""

    inner: ObjectStore
    fail_at: int = -1
    land: bool = True  # the failing write arrives
    error: type[BaseException] = Killed
    writes: int = 0
    reads: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.inner.url

    def _write(self, action: Callable[[], Any]) -> Any:
        number, self.writes = self.writes, self.writes + 1
        if number == self.fail_at:
            if self.land:
                action()
            raise self.error(f"write {number}")
        return action()

    def put(self, key: str, data: bytes) -> None:
        self._write(lambda: self.inner.put(key, data))

    def create(self, key: str, data: bytes) -> bool:
        return bool(self._write(lambda: self.inner.create(key, data)))

    def create_file(self, key: str, path: Path, *, sha256: str) -> bool:
        return bool(self._write(lambda: self.inner.create_file(key, path, sha256=sha256)))

    def get(self, key: str, *, max_bytes: int, etag: str = "") -> bytes:
        self.reads.append(key)
        return self.inner.get(key, max_bytes=max_bytes, etag=etag)

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        self.reads.append(key)
        return self.inner.get_range(key, offset, length)

    def download(self, key: str, path: Path, *, size: int, sha256: str) -> None:
        self.reads.append(key)
        self.inner.download(key, path, size=size, sha256=sha256)

    def head(self, key: str) -> ObjectInfo | None:
        return self.inner.head(key)

    def attest(self, key: str) -> ObjectInfo | None:
        return self.inner.attest(key)

    def copy(self, source: str, target: str, *, etag: str) -> None:
        self._write(lambda: self.inner.copy(source, target, etag=etag))

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        return self.inner.list(prefix, start_after=start_after)

    def delete(self, key: str) -> None:
        self.inner.delete(key)


def _parts(path: str) -> tuple[str, int]:
    route, frame = path.split("/")
    return route, int(frame)
