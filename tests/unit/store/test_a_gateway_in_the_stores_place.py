"""Where a gateway answers in the store's place for a moment, nothing is taken for absent, written or deleted."""

import contextlib
import hashlib
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from lead_protocol.store.object_store import ObjectNotFound, StoreUnavailable
from lead_protocol.store.s3 import S3Store
from lead_protocol.store.s3_target import MIB, S3Limits
from lead_testing.minio_server import MinioServer
from lead_testing.store_proxy import Fault, StoreProxy

SHORT = S3Limits(read_s=2, total_s=1.0, part_bytes=5 * MIB, first_pause_s=0.01, longest_pause_s=0.1)
ANSWERS: list[Fault] = ["bare-404", "404-page", "404-html", "499", "520", "200-html"]


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("answer", ANSWERS)
def test_every_verb_rides_out_a_moment_of_it(
    s3_behind_proxy: S3Store, proxy: StoreProxy, tmp_path: Path, answer: Fault
) -> None:
    store, times = s3_behind_proxy, 3
    big = bytes(6 * MIB)
    (tmp_path / "big").write_bytes(big)

    def moment() -> None:
        proxy.plan(answer, times=times)

    moment()
    store.put("a", b"1234")
    moment()
    assert store.create("b", b"5678") is True
    moment()
    assert store.create_file("c", tmp_path / "big", sha256=sha(big)) is True
    moment()
    assert store.get("a", max_bytes=4) == b"1234"
    moment()
    assert store.get_range("a", 1, 2) == b"23"
    moment()
    assert store.head("a") is not None
    moment()
    assert [found.key for found in store.list("")] == ["a", "b", "c"]
    moment()
    store.download("a", tmp_path / "a", size=4, sha256=sha(b"1234"))
    moment()
    store.delete("a")
    assert store.head("a") is None
    assert sum(1 for call in proxy.seen.calls if call[2] == answer) == 9 * times


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_gateway_that_stays_is_a_store_that_is_away(
    minio: MinioServer, bucket: str, proxy: StoreProxy, answer: Fault, tmp_path: Path
) -> None:
    store = S3Store(minio.target(bucket, endpoint=proxy.endpoint), SHORT)
    store.put("a", b"1234")
    proxy.plan(answer, times=10**6)
    for call in (
        lambda: store.get("a", max_bytes=4),
        lambda: store.head("absent"),
        lambda: store.create("b", b"1"),
        lambda: list(store.list("")),
        lambda: store.delete("a"),
    ):
        with pytest.raises(StoreUnavailable, match="no good answer within 1 s"):
            call()
    proxy.clear()
    assert store.get("a", max_bytes=4) == b"1234"
    assert store.head("b") is None


def test_what_is_missing_is_told_at_once(s3_behind_proxy: S3Store, proxy: StoreProxy, tmp_path: Path) -> None:
    store = S3Store(s3_behind_proxy._target, replace(SHORT, total_s=60.0))
    for call in (
        lambda: store.get("absent", max_bytes=4),
        lambda: store.get_range("absent", 0, 1),
        lambda: store.download("absent", tmp_path / "a", size=4, sha256=sha(b"1234")),
    ):
        with pytest.raises(ObjectNotFound):
            call()
    assert store.head("absent") is None
    store.delete("absent")
    assert len(proxy.seen.calls) == 5, "none of them was tried again"


def test_a_store_that_takes_no_connection_is_told_without_addresses_of_objects(minio: MinioServer, bucket: str) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as waiting:
        for _ in range(4):  # which nobody accepts: the kernel takes no more
            client = waiting.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        target = minio.target(bucket, endpoint=f"127.0.0.1:{full.getsockname()[1]}")
        store = S3Store(target, replace(SHORT, connect_s=0.2))
        with pytest.raises(StoreUnavailable, match="timed out") as failure:
            store.get("a", max_bytes=1)
    assert " at 0x" not in str(failure.value)
