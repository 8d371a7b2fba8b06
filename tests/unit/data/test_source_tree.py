"""A tree in a store and a tree in a folder look the same, and a file that is gone is named."""

from pathlib import Path

import pytest

from lead_protocol.store.folder import FolderStore
from lead_trainer.data.source_tree import FolderTree, StoreTree
from lead_trainer.errors import BadData


def test_store_and_folder_list_the_same_files(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    for name in ("data/b/1", "data/a/2", "data/a-b/3"):
        store.put(f"datasets/x/{name}", name.encode())
    store.put("datasets/xy/other", b"")
    in_store, in_folder = StoreTree(store, "datasets/x"), FolderTree(tmp_path / "datasets/x")
    assert [(f.path, f.size) for f in in_store.files()] == [(f.path, f.size) for f in in_folder.files()]
    assert [f.path for f in in_store.files()] == sorted(["data/b/1", "data/a/2", "data/a-b/3"])
    assert in_store.read("data/a/2") == in_folder.read("data/a/2") == b"data/a/2"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    for tree in (StoreTree(FolderStore(tmp_path), "t"), FolderTree(tmp_path / "t")):
        with pytest.raises(BadData, match="data/gone"):
            tree.read("data/gone")


def test_a_folder_that_is_not_mounted_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="does not exist"):
        FolderTree(tmp_path / "nowhere").files()
