"""What S3Store makes of a bad day: lost answers, bursts of 503, cut and slow bodies, redirects, wrong credentials."""

import contextlib
import hashlib
import os
import random
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from minio import time as minio_time

from lead_protocol.store.object_store import ObjectCorrupt, StoreDenied, StoreSkew, StoreUnavailable
from lead_protocol.store.s3 import S3Store
from lead_protocol.store.s3_target import MIB, S3Limits, S3Target
from lead_testing.minio_server import MinioServer, minio_program
from lead_testing.ports import dead_port
from lead_testing.store_proxy import TRICKLE_BYTES_PER_S, Fault, StoreProxy

QUICK = S3Limits(read_s=10, total_s=20, part_bytes=5 * MIB, first_pause_s=0.01, longest_pause_s=0.1)
IMPATIENT = replace(QUICK, total_s=1.0, read_s=0.5)
HOST = "store.lead.test"
HASTY = replace(QUICK, longest_retry_after_s=0.1)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def big_file(folder: Path) -> tuple[Path, bytes]:
    data = random.Random(7).randbytes(11 * MIB)
    (folder / "big").write_bytes(data)
    return folder / "big", data


def test_a_lost_answer_does_not_turn_our_own_write_into_a_defeat(s3_behind_proxy: S3Store, proxy: StoreProxy) -> None:
    proxy.plan("drop-answer", method="PUT")
    assert s3_behind_proxy.create("k", b"mine") is True
    assert proxy.seen.count("PUT") == 1, "after a uncertain answer it looks before it writes again"
    assert s3_behind_proxy.get("k", max_bytes=10) == b"mine"


def test_a_lost_answer_of_a_lost_race_is_a_defeat(
    s3_behind_proxy: S3Store, proxy: StoreProxy, minio: MinioServer, bucket: str
) -> None:
    S3Store(minio.target(bucket)).put("k", b"theirs")
    proxy.plan("drop-answer", method="PUT")
    assert s3_behind_proxy.create("k", b"mine") is False


def test_a_lost_answer_and_a_lost_read_back_still_settle(s3_behind_proxy: S3Store, proxy: StoreProxy) -> None:
    proxy.plan("drop-answer", method="PUT")
    proxy.plan("503", method="GET", times=2)
    proxy.plan("cut-body", method="GET")
    assert s3_behind_proxy.create("k", b"mine") is True


def test_a_request_that_never_arrived_is_sent_again(s3_behind_proxy: S3Store, proxy: StoreProxy) -> None:
    proxy.plan("drop-before", method="PUT", times=2)
    assert s3_behind_proxy.create("k", b"mine") is True
    assert s3_behind_proxy.get("k", max_bytes=10) == b"mine"


def test_a_burst_of_503_is_ridden_out_by_every_verb(
    s3_behind_proxy: S3Store, proxy: StoreProxy, tmp_path: Path
) -> None:
    store = s3_behind_proxy

    def burst() -> None:
        proxy.plan("503", times=3)

    burst()
    store.put("a", b"1234")
    burst()
    assert store.create("b", b"5678") is True
    burst()
    assert store.get("a", max_bytes=4) == b"1234"
    burst()
    assert store.get_range("a", 1, 2) == b"23"
    burst()
    assert store.head("a") is not None
    burst()
    assert [found.key for found in store.list("")] == ["a", "b"]
    burst()
    store.download("a", tmp_path / "a", size=4, sha256=sha(b"1234"))
    burst()
    store.delete("a")
    assert store.head("a") is None
    assert sum(1 for call in proxy.seen.calls if call[2] == "503") == 8 * 3


def test_retry_after_is_honoured(s3_behind_proxy: S3Store, proxy: StoreProxy) -> None:
    store = S3Store(s3_behind_proxy._target, replace(IMPATIENT, read_s=1.0))
    proxy.plan("503-retry-after")
    with pytest.raises(StoreUnavailable, match="SlowDown"):  # it asks for 1 s, which is all there is
        store.get("k", max_bytes=1)
    assert len(proxy.seen.calls) == 1


def test_a_store_that_stays_bad_ends_in_one_error_within_the_deadline(
    s3_behind_proxy: S3Store, proxy: StoreProxy
) -> None:
    store = S3Store(s3_behind_proxy._target, IMPATIENT)
    proxy.plan("503", times=10**6)
    with pytest.raises(StoreUnavailable, match=r"no good answer within 1 s and \d+ tries.*SlowDown"):
        store.create("k", b"x")
    assert len(proxy.seen.calls) > 2


def test_what_is_told_is_what_the_store_did_last_not_that_the_deadline_cut_a_try_off(
    s3_behind_proxy: S3Store, proxy: StoreProxy
) -> None:
    store = S3Store(s3_behind_proxy._target, replace(QUICK, total_s=3.0))
    proxy.plan("503")
    proxy.plan("stall")
    with proxy.stalled(), pytest.raises(StoreUnavailable, match=r"and 2 tries; the last: .*SlowDown"):
        store.get("k", max_bytes=1)


def test_a_cut_body_is_fetched_again(s3_behind_proxy: S3Store, proxy: StoreProxy, tmp_path: Path) -> None:
    file, data = big_file(tmp_path)
    assert s3_behind_proxy.create_file("big", file, sha256=sha(data)) is True
    proxy.plan("cut-body", method="GET", times=3)
    before = proxy.sent_bytes
    s3_behind_proxy.download("big", tmp_path / "down", size=len(data), sha256=sha(data))
    assert (tmp_path / "down").read_bytes() == data
    assert proxy.sent_bytes - before < 1.1 * len(data), "a try goes on where the last one was cut off"
    proxy.plan("cut-body", method="GET")
    assert s3_behind_proxy.get_range("big", 5, 1000) == data[5:1005]
    proxy.plan("cut-body", method="GET")
    assert [found.key for found in s3_behind_proxy.list("")] == ["big"]


def test_a_flipped_byte_is_found_before_the_file_is_visible(
    s3_behind_proxy: S3Store, proxy: StoreProxy, tmp_path: Path
) -> None:
    s3_behind_proxy.put("o", b"x" * 1000)
    proxy.plan("flip-byte", method="GET")
    with pytest.raises(ObjectCorrupt, match="SHA-256"):
        s3_behind_proxy.download("o", tmp_path / "f", size=1000, sha256=sha(b"x" * 1000))
    assert list(tmp_path.iterdir()) == []


def test_a_trickle_within_the_deadline_is_waited_for(s3_behind_proxy: S3Store, proxy: StoreProxy) -> None:
    s3_behind_proxy.put("o", bytes(range(250)) * 4)
    proxy.plan("trickle", method="GET")
    assert s3_behind_proxy.get_range("o", 0, 1000) == bytes(range(250)) * 4
    assert proxy.seen.count("GET", fault="trickle") == 1


def test_credentials_that_expire_are_denied_at_once(s3_behind_proxy: S3Store, proxy: StoreProxy) -> None:
    s3_behind_proxy.put("o", b"1")
    proxy.seen.calls.clear()
    proxy.plan("403-expired", times=10)
    with pytest.raises(StoreDenied, match=r"ExpiredToken.*check the storage profile's credentials"):
        s3_behind_proxy.get("o", max_bytes=1)
    assert len(proxy.seen.calls) == 1


def test_an_object_that_is_replaced_while_it_is_read_is_never_mixed(
    s3_behind_proxy: S3Store, minio: MinioServer, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, data = big_file(tmp_path)
    assert s3_behind_proxy.create_file("o", first, sha256=sha(data)) is True
    plain, other = s3_behind_proxy._range_into, S3Store(minio.target(bucket), QUICK)

    def replaced(part: Any, full: str, offset: int, length: int, deadline: Any) -> tuple[int, int]:
        if offset:
            other.put("o", bytes(len(data)))
        return plain(part, full, offset, length, deadline)

    monkeypatch.setattr(s3_behind_proxy, "_range_into", replaced)
    with pytest.raises(ObjectCorrupt, match=f"expected {sha(data)}"):
        s3_behind_proxy.download("o", tmp_path / "f", size=len(data), sha256=sha(data))
    assert not (tmp_path / "f").exists()


def test_a_slow_store_is_slow_but_right(s3_behind_proxy: S3Store, proxy: StoreProxy, tmp_path: Path) -> None:
    data = random.Random(3).randbytes(512 * 1024)
    s3_behind_proxy.put("o", data)
    proxy.plan("slow", method="GET", times=3)
    s3_behind_proxy.download("o", tmp_path / "f", size=len(data), sha256=sha(data))
    assert (tmp_path / "f").read_bytes() == data


def test_a_trickle_ends_with_the_deadline(s3_behind_proxy: S3Store, proxy: StoreProxy) -> None:
    store = S3Store(s3_behind_proxy._target, IMPATIENT)
    s3_behind_proxy.put("o", b"x" * 16 * TRICKLE_BYTES_PER_S)
    proxy.plan("trickle", method="GET", times=100)
    begin = time.monotonic()
    with pytest.raises(StoreUnavailable, match="not whole when the deadline passed"):
        store.get("o", max_bytes=16 * TRICKLE_BYTES_PER_S)
    assert time.monotonic() - begin < 8, "half of what the whole object would take"


@pytest.mark.parametrize("fault", ["drop-answer", "drop-before", "503", "cut-body"])
@pytest.mark.parametrize("method, part", [("POST", "uploads="), ("PUT", "partNumber=2"), ("POST", "uploadId=")])
def test_a_fault_at_any_call_of_an_upload_in_parts_changes_nothing(
    s3_behind_proxy: S3Store, proxy: StoreProxy, minio: MinioServer, bucket: str, tmp_path: Path,
    fault: Fault, method: str, part: str,
) -> None:  # fmt: skip
    file, data = big_file(tmp_path)
    proxy.plan(fault, method=method, part=part)
    assert s3_behind_proxy.create_file("big", file, sha256=sha(data)) is True
    assert s3_behind_proxy.get("big", max_bytes=len(data)) == data


def test_a_failed_upload_leaves_no_parts_behind(
    s3_behind_proxy: S3Store, minio: MinioServer, bucket: str, tmp_path: Path
) -> None:
    file, data = big_file(tmp_path)
    with pytest.raises(ObjectCorrupt):
        s3_behind_proxy.create_file("big", file, sha256=sha(b"other"))
    assert unfinished_uploads(minio, bucket) == 0
    assert s3_behind_proxy.create_file("big", file, sha256=sha(data)) is True
    assert unfinished_uploads(minio, bucket) == 0


def unfinished_uploads(minio: MinioServer, bucket: str) -> int:
    return len(minio.admin()._list_multipart_uploads(bucket, prefix="big").uploads)


def test_a_name_that_does_not_resolve_for_a_while_is_asked_for_again(
    s3: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver = Resolver(monkeypatch, failures=3)
    store = S3Store(resolver.target(s3), QUICK)
    assert store.create("k", b"mine") is True
    assert resolver.asked == 3 + 1, "the connection that was made at last is kept"
    assert s3.get("k", max_bytes=10) == b"mine"


@pytest.mark.parametrize("reason", [socket.EAI_AGAIN, socket.EAI_NONAME])
def test_a_name_that_never_resolves_is_one_error_with_the_endpoint_within_the_deadline(
    s3: S3Store, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    resolver = Resolver(monkeypatch, failures=10**9, reason=reason)
    store, begin = S3Store(resolver.target(s3), IMPATIENT), time.monotonic()
    with pytest.raises(StoreUnavailable, match=rf"at {HOST}:\d+ had no good answer .* Failed to resolve '{HOST}'"):
        store.get("k", max_bytes=1)
    assert resolver.asked > 2
    assert time.monotonic() - begin < IMPATIENT.total_s + 5, "a busy machine may add to it"


class Resolver:
    """Lets one name fail to resolve some times, and then lead to this machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, failures: int, reason: int = socket.EAI_AGAIN) -> None:
        self.asked, self._failures, self._reason = 0, failures, reason
        self._plain = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._resolve)

    def target(self, store: S3Store) -> S3Target:
        """Returns a store's target, its server reached by the name."""
        return replace(store._target, endpoint=f"{HOST}:{store._target.endpoint.rpartition(':')[2]}")

    def _resolve(self, host: str, *rest: Any, **options: Any) -> Any:
        if host != HOST:
            return self._plain(host, *rest, **options)
        self.asked += 1
        if self.asked <= self._failures:
            raise socket.gaierror(self._reason, os.strerror(0))
        return self._plain("127.0.0.1", *rest, **options)


@pytest.mark.parametrize("minutes", [-20, 20])
def test_a_clock_that_is_wrong_is_one_error_that_says_so(
    s3_behind_proxy: S3Store, proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    store = s3_behind_proxy
    store.put("k", b"1234")
    now = minio_time.utcnow
    monkeypatch.setattr(minio_time, "utcnow", lambda: now() + timedelta(minutes=minutes))
    calls: list[Callable[[], object]] = [
        lambda: store.get("k", max_bytes=4),
        lambda: store.get_range("k", 0, 2),
        lambda: list(store.list("")),
        lambda: store.put("k", b"5"),
        lambda: store.create("new", b"5"),
        lambda: store.delete("k"),
    ]
    for call in calls:
        proxy.seen.calls.clear()
        with pytest.raises(
            StoreSkew, match=r"403 RequestTimeTooSkewed.*set this machine's clock and the store's right"
        ):
            call()
        assert len(proxy.seen.calls) == 1, "it is told at once: trying again cannot help"
    monkeypatch.undo()
    assert [found.key for found in store.list("")] == ["k"] and store.get("k", max_bytes=4) == b"1234"


def test_a_wrong_clock_is_told_from_wrong_credentials_where_the_answer_has_no_body(
    s3: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.put("k", b"1234")
    now = minio_time.utcnow
    monkeypatch.setattr(minio_time, "utcnow", lambda: now() - timedelta(minutes=20))
    for call in (
        lambda: s3.head("k"),
        lambda: s3.download("k", tmp_path / "f", size=4, sha256=sha(b"1234")),  # it begins with a HEAD
    ):
        with pytest.raises(StoreSkew, match="403; set this machine's clock"):
            call()
    monkeypatch.undo()
    with pytest.raises(StoreDenied):
        S3Store(replace(s3._target, secret_key="the-wrong-secret-key"), QUICK).head("k")


def test_a_redirect_is_refused_and_never_followed(s3_behind_proxy: S3Store, proxy: StoreProxy) -> None:
    proxy.plan("redirect", times=10)
    with pytest.raises(StoreDenied, match="redirect"):
        s3_behind_proxy.get("k", max_bytes=10)
    assert len(proxy.seen.calls) == 1


def test_wrong_credentials_are_denied_at_once_and_not_told(s3: S3Store) -> None:
    wrong = replace(s3._target, secret_key="the-wrong-secret-key")
    with pytest.raises(StoreDenied, match="403 SignatureDoesNotMatch") as caught:
        S3Store(wrong, QUICK).create("k", b"x")
    assert "the-wrong-secret-key" not in f"{caught.value!r}{wrong!r}"


def test_a_missing_bucket_is_unavailable_never_an_empty_store(minio: MinioServer) -> None:
    store = S3Store(minio.target("no-such-bucket"), QUICK)
    with pytest.raises(StoreUnavailable, match="NoSuchBucket"):
        list(store.list(""))
    with pytest.raises(StoreUnavailable, match="NoSuchBucket"):
        store.get("k", max_bytes=1)
    with pytest.raises(StoreUnavailable, match="NoSuchBucket"):
        store.head("k")
    with pytest.raises(StoreUnavailable, match="NoSuchBucket"):
        store.create("k", b"x")


def test_nobody_listening_is_unavailable_within_the_deadline(s3: S3Store) -> None:
    with dead_port() as port:
        store = S3Store(replace(s3._target, endpoint=f"127.0.0.1:{port}"), IMPATIENT)
        with pytest.raises(StoreUnavailable, match="no connection"):
            store.get("k", max_bytes=1)


def test_a_silent_server_is_unavailable_within_the_deadline(s3: S3Store) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = S3Store(replace(s3._target, endpoint=f"127.0.0.1:{silent.getsockname()[1]}"), IMPATIENT)
        with pytest.raises(StoreUnavailable, match="Timeout"):
            store.create("k", b"x")


def test_a_server_that_speaks_no_s3_is_named(s3: S3Store) -> None:
    page = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\nConnection: close\r\n\r\n<html></html>"
    with socket.create_server(("127.0.0.1", 0)) as web:
        store = S3Store(replace(s3._target, endpoint=f"127.0.0.1:{web.getsockname()[1]}"), IMPATIENT)

        def serve() -> None:
            with contextlib.suppress(OSError):  # until the test closes it
                while True:
                    connection, _ = web.accept()
                    with connection:
                        connection.recv(65536)
                        connection.sendall(page)

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(StoreUnavailable, match="expected ListBucketResult, found html"):
            list(store.list(""))


def test_a_killed_server_is_waited_for(tmp_path: Path) -> None:
    with MinioServer(minio_program(), tmp_path / "minio") as server:
        server.admin().make_bucket("bucket")
        store = S3Store(server.target("bucket"), replace(HASTY, total_s=60))
        store.put("before", b"1")
        server.stop()
        restart = threading.Timer(0.3, server.start)
        restart.start()
        try:
            assert store.create("after", b"2") is True
        finally:
            restart.join()
        assert [found.key for found in store.list("")] == ["after", "before"]


def test_long_lists_come_in_pages_without_gaps(s3: S3Store) -> None:
    keys = [f"p/{number:05d}" for number in range(1005)]
    for key in keys:
        s3.put(key, b"")
    assert [found.key for found in s3.list("p/")] == keys
    assert [found.key for found in s3.list("p/", start_after=keys[1001])] == keys[1002:]


def test_a_forked_child_uses_connections_of_its_own(s3: S3Store) -> None:
    s3.put("k", b"parent")  # leaves an open connection in the pool
    child = os.fork()
    if child == 0:
        try:
            s3.put("from-child", b"x" * 100_000)
            os._exit(0 if s3.get("k", max_bytes=10) == b"parent" else 1)
        finally:
            os._exit(2)
    assert s3.get("k", max_bytes=10) == b"parent"
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert s3.get("from-child", max_bytes=100_000) == b"x" * 100_000
