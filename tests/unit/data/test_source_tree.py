"""A tree in a store and a tree in a folder look the same, and a file that is gone is named."""

import os
import tracemalloc
from pathlib import Path

import pytest

from lead_protocol.store.folder import FolderStore
from lead_protocol.store.s3 import S3Store
from lead_testing.logged import Logged
from lead_testing.minio_server import MinioServer, minio_program
from lead_trainer.data.source_tree import MAX_FILE_BYTES, FolderTree, StoreTree
from lead_trainer.errors import BadData

NOBODY = 65534


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


def test_a_file_that_changes_after_the_listing_is_named(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    for name in ("r1/0", "r1/1"):
        store.put(f"t/{name}", b"1")
    in_store, in_folder = StoreTree(store, "t"), FolderTree(tmp_path / "t")
    for tree in (in_store, in_folder):
        assert tree.read("r1/0") == b"1", "nothing was promised before the listing"
        assert len(tree.files()) == 2
    store.put("t/r1/0", b"recorded again")
    for tree in (in_store, in_folder):
        assert tree.read("r1/1") == b"1"
        with pytest.raises(BadData, match="t/r1/0 changed since the dataset was listed"):
            tree.read("r1/0")
    os.utime(tmp_path / "t/r1/1", ns=(1, 1))
    with pytest.raises(BadData, match="t/r1/1 changed since"):
        in_folder.read("r1/1")


def test_an_object_replaced_by_one_of_its_size_after_the_listing_is_named(tmp_path: Path) -> None:
    with MinioServer(minio_program(), tmp_path) as server:
        server.admin().make_bucket("trees")
        store = S3Store(server.target("trees", "some/prefix"))
        for name in ("r1/0", "r1/1"):
            store.put(f"t/{name}", b"first")
        tree = StoreTree(store, "t")
        assert [file.path for file in tree.files()] == ["r1/0", "r1/1"] and tree.read("r1/0") == b"first"
        store.put("t/r1/0", b"other")
        with pytest.raises(BadData, match="t/r1/0 changed since the dataset was listed"):
            tree.read("r1/0")
        assert tree.read("r1/1") == b"first" and StoreTree(store, "t").read("r1/0") == b"other"


def test_a_tree_put_together_of_links_is_the_tree_they_lead_to(tmp_path: Path) -> None:
    for name in ("r1/rgb/0.jpg", "r2/rgb/0.jpg", "r2/results.json"):
        (tmp_path / "disk" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "disk" / name).write_text(name)
    (tmp_path / "tree/data").mkdir(parents=True)
    (tmp_path / "tree/data/r1").symlink_to(tmp_path / "disk/r1")
    (tmp_path / "tree/data/r2").symlink_to("../../disk/r2")  # as a person types it
    (tmp_path / "tree/data/again").symlink_to("r2")  # a second way to the same folder is not a loop
    (tmp_path / "link").symlink_to("tree")
    tree = FolderTree(tmp_path / "link", links_may_leave=True)
    expected = {
        "data/r1/rgb/0.jpg",
        *(f"data/{r}/{name}" for r in ("r2", "again") for name in ("rgb/0.jpg", "results.json")),
    }
    assert [file.path for file in tree.files()] == sorted(expected)
    assert tree.read("data/again/results.json") == b"r2/results.json"
    (tmp_path / "plain").symlink_to("tree/data/r2")
    assert FolderTree(tmp_path / "plain").files() == FolderTree(tmp_path / "disk/r2").files(), "one cache for both"


def test_a_link_out_of_the_tree_is_refused_by_name_and_what_it_leads_to_stays_unsaid(tmp_path: Path) -> None:
    """A volume's link to a file of the pod, such as its credentials, is neither listed nor read.

    Audit: FolderTree
    """
    (tmp_path / "tree/data").mkdir(parents=True)
    (tmp_path / "tree-2").mkdir()
    for secret in ("secret-key", "tree-2/secret-key"):
        (tmp_path / secret).write_text("AKIA-canary")
    (tmp_path / "tree/data/file").write_text("data")
    (tmp_path / "tree/data/inside").symlink_to("file")
    tree = FolderTree(tmp_path / "tree")
    assert [file.path for file in tree.files()] == ["data/file", "data/inside"] and tree.read("data/inside") == b"data"
    for number, target in enumerate([tmp_path / "secret-key", "../../tree-2/secret-key", tmp_path / "tree-2", "/proc"]):
        link = tmp_path / f"tree/data/link{number}"
        link.symlink_to(target)
        with pytest.raises(BadData, match=rf"data/link{number} leads out of the dataset by a link") as refused:
            FolderTree(tmp_path / "tree").files()
        with pytest.raises(BadData, match=rf"data/link{number}") as unread:
            tree.read(f"data/link{number}")
        assert "canary" not in f"{refused.value}{unread.value}" and "secret-key" not in str(refused.value)
        link.unlink()
    for path in ("../secret-key", str(tmp_path / "secret-key"), "data/../../secret-key"):
        with pytest.raises(BadData, match="leads out of the dataset"):
            tree.read(path)


def test_a_file_that_becomes_a_link_after_the_listing_is_refused(tmp_path: Path) -> None:
    """What was opened decides, not the name that was checked before.

    Audit: FolderTree
    """
    (tmp_path / "tree/data").mkdir(parents=True)
    (tmp_path / "secrets").mkdir()
    for name in ("tree/data/file", "secrets/file"):
        (tmp_path / name).write_text("12345")
    tree = FolderTree(tmp_path / "tree")
    tree.files()
    (tmp_path / "tree/data").rename(tmp_path / "tree/before")
    (tmp_path / "tree/data").symlink_to(tmp_path / "secrets")
    with pytest.raises(BadData, match="data/file leads out of the dataset"):
        tree.read("data/file")


def test_a_dataset_whose_own_folder_leads_out_of_its_volume_is_refused(tmp_path: Path) -> None:
    """Audit: FolderTree"""
    (tmp_path / "volume/v2").mkdir(parents=True)
    (tmp_path / "volume/latest").symlink_to("v2")
    (tmp_path / "volume/out").symlink_to("..")
    assert FolderTree(tmp_path / "volume/latest", volume=tmp_path / "volume").files() == ()
    with pytest.raises(BadData, match="volume/out is a link that leads out of its volume"):
        FolderTree(tmp_path / "volume/out", volume=tmp_path / "volume")


def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    """A pipe without a writer would be read for ever.

    Audit: FolderTree
    """
    os.mkfifo(tmp_path / "pipe")
    tree = FolderTree(tmp_path)
    for look in (tree.files, lambda: tree.read("pipe")):
        with pytest.raises(BadData, match="pipe is no regular file"):
            look()


def test_a_file_too_large_for_a_dataset_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "scene.json").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(BadData, match=r"scene\.json has more than"):
        FolderTree(tmp_path).read("scene.json")


def test_reading_a_file_takes_memory_by_its_size(tmp_path: Path) -> None:
    (tmp_path / "sensor.json").write_bytes(b"[]")
    tree = FolderTree(tmp_path)
    tracemalloc.start()
    try:
        assert tree.read("sensor.json") == b"[]"
        assert tracemalloc.get_traced_memory()[1] < 1_000_000  # bytes
    finally:
        tracemalloc.stop()


def test_links_that_lead_back_are_left_out_with_a_warning(tmp_path: Path, logged: Logged) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_bytes(b"1")
    (tmp_path / "a/b/up").symlink_to("..")
    (tmp_path / "a/self").symlink_to(".")
    (tmp_path / "c").mkdir()
    (tmp_path / "c/to-a").symlink_to("../a")
    (tmp_path / "a/to-c").symlink_to("../c")  # a and c lead to each other
    files = [file.path for file in FolderTree(tmp_path).files()]
    assert files == ["a/b/file", "c/to-a/b/file"]
    assert {(line["event"], line["folder"]) for line in logged} == {
        ("folder leads back to a folder it lies in; it is left out", f"{tmp_path}/{link}")
        for link in ("a/b/up", "a/self", "a/to-c/to-a", "c/to-a/to-c", "c/to-a/self", "c/to-a/b/up")
    }


@pytest.mark.parametrize("target", ["gone", "itself"])
def test_a_link_that_leads_nowhere_is_named(tmp_path: Path, target: str) -> None:
    (tmp_path / "itself").symlink_to(target)
    with pytest.raises(BadData, match=r"itself: .*; restore it, or remove the link"):
        FolderTree(tmp_path).files()


def test_a_volumes_own_folder_is_no_data(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "lost+found/#123").write_bytes(b"1")
    (tmp_path / "file").write_bytes(b"1")
    assert [file.path for file in FolderTree(tmp_path).files()] == ["file"]


def test_a_folder_that_may_not_be_read_is_named_and_never_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    user = os.geteuid()
    os.seteuid(user or NOBODY)  # root may read every folder
    try:
        with pytest.raises(BadData, match="closed: Permission denied"):
            FolderTree(Path()).files()
    finally:
        os.seteuid(user)


def test_a_file_for_a_library_is_the_folders_own_and_fetched_once_from_a_bucket(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/log.db").write_bytes(b"rows")
    (tmp_path / "secret").write_bytes(b"1")
    (tmp_path / "tree/out").symlink_to("../secret")
    folder = FolderTree(tmp_path / "tree")
    assert folder.local_file("log.db") == tmp_path / "tree/log.db"
    with pytest.raises(BadData, match="leads out of the dataset by a link"):
        folder.local_file("out")
    with pytest.raises(BadData, match="none: No such file or directory; restore it"):
        folder.local_file("none")
    store = FolderStore(tmp_path / "store")
    store.put("raw/log.db", b"rows")
    bucket = StoreTree(store, "raw")
    copy = bucket.local_file("log.db")
    assert copy.read_bytes() == b"rows" and bucket.local_file("log.db") == copy
    store.delete("raw/log.db")
    assert bucket.local_file("log.db").read_bytes() == b"rows"
    del bucket
    assert not copy.exists()
