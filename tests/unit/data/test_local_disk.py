"""A session cache on a volume of several nodes is refused: training streams, and the log says why."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lead_testing.built_caches import build_and_publish
from lead_testing.logged import Logged
from lead_trainer.data import local_disk
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.session_cache import open_session_cache


def test_the_kind_of_a_volume_is_read_from_the_system(volume: Callable[..., Path]) -> None:
    assert local_disk.volume_kind(volume(1 << 16)) == "tmpfs"


def test_a_system_that_does_not_tell_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for mounts in ("", "1 1 254:9999 / /elsewhere rw - nfs4 server:/ rw\n"):
        (tmp_path / "mounts").write_text(mounts)
        monkeypatch.setattr(local_disk, "MOUNTS", tmp_path / "mounts")
        local_disk.refuse_shared_volume(tmp_path)
    monkeypatch.setattr(local_disk, "MOUNTS", tmp_path / "none")
    local_disk.refuse_shared_volume(tmp_path)


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "ceph", "lustre", "fuse.s3fs"])
@pytest.mark.parametrize("backend", ["packed", "diskcache"])
def test_a_volume_of_several_nodes_means_streaming_and_a_warning(
    backend: str, kind: str, job: Any, store: Any, tree: Any, recipe: Any, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, logged: Logged,
) -> None:  # fmt: skip
    digest = build_and_publish(job(), store, tree, recipe, lambda record: None, part_bytes=150).digest
    device = (tmp_path / ".").stat().st_dev
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"36 35 {os.major(device)}:{os.minor(device)} / {tmp_path} rw shared:1 - {kind} server:/data rw\n"
    )
    monkeypatch.setattr(local_disk, "MOUNTS", mounts)
    reader = CacheReader(store, digest, open_session_cache(backend, store, tmp_path / "ssd", 0))
    direct = CacheReader(store, digest)
    for sample in reader.rows("all").sample.tolist():
        assert reader.fields(sample)["data"] == direct.fields(sample)["data"]
    assert reader.metas().row("r1", 3) == direct.metas().row("r1", 3)
    assert reader.stats().degraded and reader.stats().hits == 0
    assert f"lies on {kind}, a volume of several nodes" in str(logged)
    assert not [path for path in (tmp_path / "ssd").rglob("*") if path.is_file()]
