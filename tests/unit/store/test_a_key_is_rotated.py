"""A key pair that is rotated under a running process: its mounted files are read again before anything ends."""

import hashlib
import pickle
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from lead_protocol.store.object_store import StoreDenied
from lead_protocol.store.open_store import open_store
from lead_protocol.store.s3 import S3Store
from lead_protocol.store.s3_target import MIB, S3Limits
from lead_testing.minio_server import MinioServer
from lead_testing.operator_process import wait_for
from lead_testing.store_proxy import StoreProxy
from lead_trainer import storage

AT_ONCE = S3Limits(read_s=10, total_s=20, part_bytes=5 * MIB, first_pause_s=0.01, longest_pause_s=0.05)
PATIENT = replace(AT_ONCE, rotation_s=20)
OLD, NEW = "the-old-secret", "the-new-secret"
Rotate = Callable[[str], None]
Opened = Callable[[S3Limits], S3Store]


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    (tmp_path / "s3").mkdir()
    return tmp_path / "s3"


@pytest.fixture
def rotate(minio: MinioServer, bucket: str, mounted: Path) -> Rotate:
    """Sets the key of a user that may do what pods may; the files of the mounted Secret stay as they are."""
    name = f"pods-of-{secrets.token_hex(4)}"
    (mounted / "access-key").write_text(name)

    everything = f"arn:aws:s3:::{bucket}"
    actions = ["s3:GetObject", "s3:PutObject", "s3:ListBucket", "s3:AbortMultipartUpload"]
    statement = {"Effect": "Allow", "Action": actions, "Resource": [everything, f"{everything}/*"]}

    def call(secret_key: str) -> None:
        minio.add_user(name, secret_key, {"Version": "2012-10-17", "Statement": [statement]})

    call(OLD)
    (mounted / "secret-key").write_text(OLD)
    return call


@pytest.fixture
def opened(proxy: StoreProxy, bucket: str, mounted: Path) -> Opened:
    def call(limits: S3Limits) -> S3Store:
        environ = {
            "LEAD_STORE_URL": f"s3://{bucket}", "LEAD_S3_ENDPOINT": proxy.endpoint, "LEAD_S3_SECURE": "false",
        }  # fmt: skip
        store = open_store(environ, credentials_dir=mounted, limits=limits)
        assert isinstance(store, S3Store)
        return store

    return call


def test_a_process_goes_on_with_the_new_key_as_soon_as_the_old_one_is_refused(
    opened: Opened, rotate: Rotate, mounted: Path, tmp_path: Path
) -> None:
    store = opened(AT_ONCE)
    store.put("k", b"before")
    rotate(NEW)
    (mounted / "secret-key").write_text(NEW)
    big = random.Random(7).randbytes(11 * MIB)
    (tmp_path / "big").write_bytes(big)
    assert store.create_file("big", tmp_path / "big", sha256=hashlib.sha256(big).hexdigest()) is True
    assert store.get("k", max_bytes=10) == b"before"
    assert [info.key for info in store.list("")] == ["big", "k"]
    rotate(OLD)
    (mounted / "secret-key").write_text(OLD)
    assert store.head("k") is not None


def test_a_new_key_that_is_mounted_later_is_waited_for(
    opened: Opened, rotate: Rotate, mounted: Path, proxy: StoreProxy
) -> None:
    store = opened(replace(PATIENT, total_s=5))
    store.put("k", b"before")
    rotate(NEW)
    calls = [threading.Thread(target=store.put, args=(f"k{index}", b"after")) for index in range(4)]
    for call in calls:
        call.start()
    later = time.monotonic() + 6  # than the time that a call has
    wait_for("each call to be refused for long", lambda: time.monotonic() > later and proxy.seen.count("PUT") > 20)
    (mounted / "secret-key").write_text(NEW)
    for call in calls:
        call.join(20)
    assert [info.key for info in store.list("k")] == ["k", "k0", "k1", "k2", "k3"]


def test_a_mounted_key_that_the_store_does_not_know_yet_is_waited_for(
    opened: Opened, rotate: Rotate, mounted: Path, proxy: StoreProxy
) -> None:
    store = opened(PATIENT)
    store.put("k", b"before")
    rotate("a-key-of-no-file")
    (mounted / "secret-key").write_text(NEW)
    call = threading.Thread(target=store.put, args=("k", b"after"))
    call.start()
    wait_for("the new key to be refused", lambda: proxy.seen.count("PUT") > 4)
    rotate(NEW)
    call.join(20)
    assert store.get("k", max_bytes=10) == b"after"


def test_the_wait_for_a_new_key_ends_for_all_calls(opened: Opened, rotate: Rotate, proxy: StoreProxy) -> None:
    store = opened(replace(PATIENT, rotation_s=0.3))
    store.put("k", b"before")
    rotate(NEW)
    with pytest.raises(StoreDenied, match="SignatureDoesNotMatch"):
        store.put("k", b"after")
    tried = proxy.seen.count("PUT")
    with pytest.raises(StoreDenied):
        store.put("k", b"after")
    assert proxy.seen.count("PUT") == tried + 1


def test_a_key_that_was_never_good_is_told_at_once(opened: Opened, rotate: Rotate, proxy: StoreProxy) -> None:
    rotate(NEW)
    with pytest.raises(StoreDenied):
        opened(PATIENT).put("k", b"x")
    assert proxy.seen.count("PUT") == 1


def test_what_a_good_key_may_not_do_is_told_at_once(opened: Opened, rotate: Rotate, proxy: StoreProxy) -> None:
    store = opened(PATIENT)
    store.put("k", b"x")
    with pytest.raises(StoreDenied, match="AccessDenied"):
        store.delete("k")
    assert proxy.seen.count("DELETE") == 1


@contextmanager
def writing(store: S3Store) -> Iterator[None]:
    """Lets another thread write with the same key, and the store take it."""
    over = threading.Event()

    def write() -> None:
        while not over.is_set():
            store.put("other", b"x")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(20)


def test_a_denial_without_a_word_is_told_as_soon_as_the_store_takes_the_key_for_another_request(
    opened: Opened, rotate: Rotate, proxy: StoreProxy
) -> None:
    store = opened(PATIENT)
    store.put("k", b"x")
    proxy.plan("403-expired", method="HEAD", times=10**6)  # a HEAD has no body
    proxy.seen.calls.clear()
    with writing(store), pytest.raises(StoreDenied):
        store.head("k")
    assert heads_too_many([method for method, *_ in proxy.seen.calls]) <= 1


def heads_too_many(methods: list[str]) -> int:
    """Counts the HEADs that came after the store had taken a PUT which had been sent after a refusal.

    When the second HEAD comes the first was refused. One PUT may be on its way then; the next is sent after it, and was
    taken when a third comes.
    """
    heads = [number for number, method in enumerate(methods) if method == "HEAD"]
    refused = heads[1] if len(heads) > 1 else len(methods)
    puts = [number for number, method in enumerate(methods) if method == "PUT" and number > refused]
    return sum(number > puts[2] for number in heads) if len(puts) > 2 else 0


def test_the_wait_for_a_new_key_ends_though_the_store_takes_the_old_one_for_other_requests(
    opened: Opened, rotate: Rotate, proxy: StoreProxy
) -> None:
    store = opened(replace(PATIENT, rotation_s=0.3))
    store.put("k", b"x")
    proxy.plan("403-expired", method="GET", times=60)
    with writing(store), pytest.raises(StoreDenied, match="ExpiredToken"):
        store.get("k", max_bytes=10)
    assert proxy.seen.count("GET") < 20


def test_a_file_that_is_gone_meanwhile_leaves_the_denial_to_be_told(
    opened: Opened, rotate: Rotate, mounted: Path
) -> None:
    store = opened(AT_ONCE)
    store.put("k", b"x")
    rotate(NEW)
    (mounted / "secret-key").unlink()
    with pytest.raises(StoreDenied, match="SignatureDoesNotMatch") as caught:
        store.put("k", b"x")
    assert pickle.loads(pickle.dumps(caught.value)).of_key


def test_trainers_wait_longer_than_a_kubelet_takes_for_a_secret() -> None:
    assert storage.LIMITS.rotation_s >= 2 * 120
