"""What every object store promises; each test runs against a folder and a real MinIO, by path and by host name."""

import errno
import hashlib
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lead_protocol.store.key_rules import UnsafeKey
from lead_protocol.store.object_store import ObjectCorrupt, ObjectNotFound, ObjectReplaced, ObjectStore, StoreFull

MIB = 1024 * 1024
BIG = 11 * MIB + 17  # three parts at the suite's part size


def some_bytes(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_what_was_put_is_read(store: ObjectStore) -> None:
    store.put("a/b.json", b"one")
    assert store.get("a/b.json", max_bytes=3) == b"one"
    store.put("a/b.json", b"two, longer")
    assert store.get("a/b.json", max_bytes=100) == b"two, longer"


def test_an_empty_object_is_an_object(store: ObjectStore) -> None:
    assert store.create("empty", b"") is True
    assert store.get("empty", max_bytes=0) == b""
    found = store.head("empty")
    assert found is not None and found.size == 0


def test_a_missing_object_is_not_found(store: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFound, match="a/b"):
        store.get("a/b", max_bytes=10)
    with pytest.raises(ObjectNotFound):
        store.get_range("a/b", 0, 1)
    with pytest.raises(ObjectNotFound):
        store.download("a/b", tmp_path / "f", size=1, sha256=sha(b"x"))
    assert store.head("a/b") is None
    assert list(store.list("a/")) == []
    store.delete("a/b")


def test_a_disk_without_room_for_a_download_is_named(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("a", b"x")

    def full(descriptor: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StoreFull, match=r"no room left for .*/files/f "):
        store.download("a", tmp_path / "files/f", size=1, sha256=sha(b"x"))
    assert not list((tmp_path / "files").iterdir())


def test_an_object_larger_than_expected_is_refused(store: ObjectStore) -> None:
    store.put("big", b"x" * 11)
    with pytest.raises(ObjectCorrupt, match="10"):
        store.get("big", max_bytes=10)


def test_one_version_is_read_or_nothing(store: ObjectStore) -> None:
    store.put("v", b"first")
    first = store.head("v")
    assert first is not None and store.get("v", max_bytes=5, etag=first.etag) == b"first"
    now = first
    while now.etag == first.etag:  # the clock of a folder may stand still for some milliseconds
        store.put("v", b"again")
        (now,) = store.list("v")
    assert store.get("v", max_bytes=5, etag=now.etag) == store.get("v", max_bytes=5) == b"again"
    with pytest.raises(ObjectReplaced, match=r"/v\b.*another"):
        store.get("v", max_bytes=5, etag=first.etag)


def test_a_range_is_exact_or_refused(store: ObjectStore) -> None:
    store.put("o", b"0123456789")
    assert store.get_range("o", 3, 4) == b"3456"
    assert store.get_range("o", 9, 1) == b"9"
    assert store.get_range("o", 2, 0) == b""
    for offset, length in ((8, 3), (10, 1), (100, 5)):
        with pytest.raises(ObjectCorrupt):
            store.get_range("o", offset, length)


def test_head_tells_size_and_an_etag_that_changes_with_the_bytes(store: ObjectStore) -> None:
    store.put("o", b"first")
    first = store.head("o")
    store.put("o", b"second")
    second = store.head("o")
    assert first is not None and second is not None
    assert (first.key, first.size, second.size) == ("o", 5, 6)
    assert first.etag and first.etag != second.etag


def test_list_is_in_key_order_below_the_prefix(store: ObjectStore) -> None:
    keys = ["a-b", "a/b", "a/b.c", "a/c/d", "a0", "ab", "b/ü", "b/z", "b/with space+plus&amp"]
    for key in random.Random(1).sample(keys, len(keys)):
        store.put(key, key.encode())
    in_order = sorted(keys, key=str.encode)
    assert [found.key for found in store.list("")] == in_order
    assert [found.key for found in store.list("a/")] == ["a/b", "a/b.c", "a/c/d"]
    assert [found.key for found in store.list("a/b")] == ["a/b", "a/b.c"]
    assert [found.key for found in store.list("a")] == [key for key in in_order if key.startswith("a")]
    assert [found.key for found in store.list("", start_after="a/b.c")] == in_order[in_order.index("a/b.c") + 1 :]
    assert {found.key: found.size for found in store.list("")} == {key: len(key.encode()) for key in keys}
    assert list(store.list("nothing/")) == []


def test_a_deleted_object_is_gone_from_reads_and_lists(store: ObjectStore) -> None:
    store.put("x/1", b"1")
    store.put("x/2", b"2")
    store.delete("x/1")
    assert store.head("x/1") is None
    assert [found.key for found in store.list("x/")] == ["x/2"]
    assert store.create("x/1", b"again") is True


def test_create_never_overwrites(store: ObjectStore) -> None:
    assert store.create("k", b"first") is True
    assert store.create("k", b"other") is False
    assert store.create("k", b"other, longer") is False
    assert store.get("k", max_bytes=100) == b"first"


def test_create_of_the_same_bytes_twice_is_true_twice(store: ObjectStore) -> None:
    assert store.create("k", b"same") is True
    assert store.create("k", b"same") is True


def race(writers: int, write: Callable[[int], bool]) -> list[int]:
    start, verdicts = threading.Barrier(writers), [False] * writers

    def one(index: int) -> None:
        start.wait()
        verdicts[index] = write(index)

    threads = [threading.Thread(target=one, args=(index,)) for index in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    return [index for index, won in enumerate(verdicts) if won]


def test_many_writers_of_one_key_have_exactly_one_winner(store: ObjectStore) -> None:
    for turn in range(10):
        key = f"race/{turn}"
        winners = race(16, lambda index, key=key: store.create(key, b"writer %04d" % index))  # type: ignore[misc]
        assert len(winners) == 1
        assert store.get(key, max_bytes=100) == b"writer %04d" % winners[0]


def test_many_writers_of_one_large_file_have_exactly_one_winner(store: ObjectStore, tmp_path: Path) -> None:
    files = [some_bytes(BIG, seed) for seed in range(4)]
    for seed, data in enumerate(files):
        (tmp_path / str(seed)).write_bytes(data)
    winners = race(4, lambda index: store.create_file("big", tmp_path / str(index), sha256=sha(files[index])))
    assert len(winners) == 1
    assert store.get("big", max_bytes=BIG) == files[winners[0]]


@pytest.mark.parametrize("size", [0, 1, 5 * MIB, 5 * MIB + 1, BIG])
def test_a_file_comes_back_as_it_went(store: ObjectStore, tmp_path: Path, size: int) -> None:
    data = some_bytes(size)
    (tmp_path / "up").write_bytes(data)
    assert store.create_file("d/f", tmp_path / "up", sha256=sha(data)) is True
    assert store.create_file("d/f", tmp_path / "up", sha256=sha(data)) is True
    store.download("d/f", tmp_path / "new" / "down", size=size, sha256=sha(data))
    assert (tmp_path / "new" / "down").read_bytes() == data
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["down"]


def test_create_file_never_overwrites(store: ObjectStore, tmp_path: Path) -> None:
    first, same_size, other_size = some_bytes(BIG, 1), some_bytes(BIG, 2), some_bytes(BIG - 1, 3)
    verdicts = []
    for name, data in (("a", first), ("b", same_size), ("c", other_size)):
        (tmp_path / name).write_bytes(data)
        verdicts.append(store.create_file("f", tmp_path / name, sha256=sha(data)))
    assert verdicts == [True, False, False]
    assert store.get("f", max_bytes=BIG) == first


@pytest.mark.parametrize("size", [100, BIG])
def test_a_file_that_is_not_what_was_promised_is_never_visible(store: ObjectStore, tmp_path: Path, size: int) -> None:
    (tmp_path / "f").write_bytes(some_bytes(size))
    with pytest.raises(ObjectCorrupt, match="SHA-256"):
        store.create_file("f", tmp_path / "f", sha256=sha(b"something else"))
    assert store.head("f") is None
    assert list(store.list("")) == []


def test_a_download_with_wrong_size_or_digest_leaves_no_file(store: ObjectStore, tmp_path: Path) -> None:
    data = some_bytes(1000)
    store.put("o", data)
    for size, digest in ((999, sha(data)), (1001, sha(data)), (1000, sha(b"other"))):
        with pytest.raises(ObjectCorrupt):
            store.download("o", tmp_path / "down" / "f", size=size, sha256=digest)
    assert not (tmp_path / "down").exists() or list((tmp_path / "down").iterdir()) == []


def test_a_failed_download_keeps_the_earlier_file(store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"earlier")
    store.put("o", b"new")
    with pytest.raises(ObjectCorrupt):
        store.download("o", tmp_path / "f", size=3, sha256=sha(b"???"))
    assert (tmp_path / "f").read_bytes() == b"earlier"


UNSAFE_KEYS = [
    "", "/", "/a", "a/", "a//b", "..", "../a", "a/../b", "a/./b", ".", "a/..", "a\0b", "a\nb", "a\\b",
    "a\u202eb", "a\u200bb", "x" * 1025, "ü" * 513,
]  # fmt: skip


@pytest.mark.parametrize("key", UNSAFE_KEYS, ids=lambda key: ascii(key)[:20])
def test_an_unsafe_key_is_refused_by_every_verb(store: ObjectStore, tmp_path: Path, key: str) -> None:
    """Audit: S8"""
    (tmp_path / "f").write_bytes(b"x")
    calls: list[Callable[[], object]] = [
        lambda: store.get(key, max_bytes=1),
        lambda: store.get_range(key, 0, 1),
        lambda: store.download(key, tmp_path / "g", size=1, sha256=sha(b"x")),
        lambda: store.head(key),
        lambda: store.put(key, b"x"),
        lambda: store.create(key, b"x"),
        lambda: store.create_file(key, tmp_path / "f", sha256=sha(b"x")),
        lambda: store.delete(key),
    ]
    for call in calls:
        with pytest.raises(UnsafeKey, match="object key"):
            call()
    if key and not key.endswith("a/"):
        with pytest.raises(UnsafeKey):
            list(store.list(key))


def test_the_url_names_the_place_without_credentials(store: ObjectStore) -> None:
    assert store.url.startswith(("file:///", "s3://test-"))
    assert "password" not in repr(store) + store.url
