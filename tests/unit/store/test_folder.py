"""What only the folder store has to promise: nothing half-written, nothing outside its root."""

import errno
import fcntl
import os
import time
from pathlib import Path

import pytest

from lead_protocol.store.folder import PARTS_FOLDER, FolderStore
from lead_protocol.store.key_rules import UnsafeKey
from lead_protocol.store.object_store import StoreError, StoreFull
from lead_protocol.store.partial_file import STALE_AFTER_S, PartialFile, partial_file


def test_unfinished_writes_are_neither_listed_nor_addressable(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put("a", b"1")
    (tmp_path / PARTS_FOLDER / "left.part").write_bytes(b"half")
    assert [found.key for found in store.list("")] == ["a"]
    with pytest.raises(UnsafeKey, match=r"\.parts"):
        store.get(f"{PARTS_FOLDER}/left.part", max_bytes=10)


def test_an_interrupted_write_leaves_the_old_object(tmp_path: Path) -> None:
    (tmp_path / "o").write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), partial_file(tmp_path, "o") as part:
        part.write(b"new")
        raise KeyboardInterrupt
    assert (tmp_path / "o").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["o"]


def test_a_put_that_dies_while_it_writes_leaves_the_old_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FolderStore(tmp_path)
    store.put("o", b"old")

    def die(part: PartialFile, data: bytes) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PartialFile, "write", die)
    with pytest.raises(KeyboardInterrupt):
        store.put("o", b"new")
    assert store.get("o", max_bytes=10) == b"old"


def test_parts_of_dead_writers_are_removed_and_those_of_living_ones_kept(tmp_path: Path) -> None:
    old = time.time() - STALE_AFTER_S - 1
    for name in ("dead.part", "alive.part", "young.part", "not-a-part"):
        (tmp_path / name).write_bytes(b"")
        if name != "young.part":
            os.utime(tmp_path / name, (old, old))
    with (tmp_path / "alive.part").open("rb") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)
        with partial_file(tmp_path, "x"):
            pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alive.part", "not-a-part", "young.part"]


def test_an_object_in_the_way_of_another_is_named(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put("a", b"1")
    with pytest.raises(StoreError, match="cannot hold both"):
        store.put("a/b", b"2")
    store.put("c/d", b"3")
    with pytest.raises(StoreError, match="cannot hold both"):
        store.put("c", b"4")


def test_a_full_disk_is_store_full_and_keeps_old_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FolderStore(tmp_path)
    store.put("o", b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreFull, match="no room"):
        store.put("o", b"new")
    assert store.get("o", max_bytes=10) == b"old"


def test_a_folder_that_does_not_exist_yet_is_an_empty_store(tmp_path: Path) -> None:
    assert list(FolderStore(tmp_path / "new").list("")) == []
    assert not (tmp_path / "new").exists()
