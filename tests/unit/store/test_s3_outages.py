"""A long transfer ends when nothing of it comes or goes for a while, so an outage in mid-way shows soon."""

import hashlib
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lead_protocol.store.object_store import StoreUnavailable
from lead_protocol.store.s3 import S3Store
from lead_protocol.store.s3_target import MIB, S3Limits
from lead_testing.store_proxy import StoreProxy

SIZE = 22 * MIB
LIMITS = S3Limits(read_s=5, total_s=1, part_bytes=5 * MIB, first_pause_s=0.01, longest_pause_s=0.1)


@pytest.fixture
def file(tmp_path: Path) -> tuple[Path, str]:
    """A file of five parts and its digest."""
    data = random.Random(7).randbytes(SIZE)
    (tmp_path / "file").write_bytes(data)
    return tmp_path / "file", hashlib.sha256(data).hexdigest()


def after(count: int, method: str, part: str = "") -> Callable[[str, str], bool]:
    """Matches the calls of a kind after the first `count`."""
    met = 0

    def matches(called: str, path: str) -> bool:
        nonlocal met
        met += called == method and part in path
        return met > count

    return matches


def test_a_store_that_goes_away_in_mid_download_is_told_within_the_time_of_one_call(
    s3_behind_proxy: S3Store, proxy: StoreProxy, file: tuple[Path, str], tmp_path: Path
) -> None:
    path, sha256 = file
    assert s3_behind_proxy.create_file("o", path, sha256=sha256)
    proxy.plan_where("503", after(1, "GET"))
    store, begin = S3Store(s3_behind_proxy._target, LIMITS), time.monotonic()
    assert LIMITS.total_for(SIZE) > 60
    with pytest.raises(StoreUnavailable, match="no good answer within 1 s"):
        store.download("o", tmp_path / "down", size=SIZE, sha256=sha256)
    assert time.monotonic() - begin < 30
    assert not (tmp_path / "down").exists()


def test_a_store_that_goes_away_in_mid_upload_is_told_within_the_time_of_the_parts_on_their_way(
    s3_behind_proxy: S3Store, proxy: StoreProxy, file: tuple[Path, str]
) -> None:
    path, sha256 = file
    limits = replace(LIMITS, parallel=1, slowest_bytes_per_s=5 * MIB)
    proxy.plan_where("503", after(1, "PUT", "partNumber"))
    with pytest.raises(StoreUnavailable, match="no good answer within 2 s"):
        S3Store(s3_behind_proxy._target, limits).create_file("o", path, sha256=sha256)


def test_a_slow_transfer_that_goes_on_may_take_longer_than_one_call(
    s3_behind_proxy: S3Store, proxy: StoreProxy, file: tuple[Path, str], tmp_path: Path
) -> None:
    path, sha256 = file
    assert s3_behind_proxy.create_file("o", path, sha256=sha256)
    proxy.plan("slow", method="GET", times=100)
    store, begin = S3Store(s3_behind_proxy._target, replace(LIMITS, total_s=4)), time.monotonic()
    store.download("o", tmp_path / "down", size=SIZE, sha256=sha256)
    assert time.monotonic() - begin > 4
