"""A late read is sent a second time, no read more than twice, and few reads in all."""

import itertools
import threading
import time

import pytest

from lead_protocol.store.hedge import BURST, LEAST_READS, MOST_BYTES, SHARE, Hedge
from lead_protocol.store.s3 import S3Store
from lead_testing.store_proxy import StoreProxy

SIZE = 1000


def warmed() -> Hedge:
    hedge = Hedge()
    for _ in range(LEAST_READS):
        hedge.call(lambda: None, SIZE)
    return hedge


def test_the_faster_answer_of_two_is_taken() -> None:
    hedge, release, calls = warmed(), threading.Event(), itertools.count()

    def read() -> str:
        if next(calls) == 0:
            release.wait(30)
            return "late"
        return "early"

    assert hedge.call(read, SIZE) == "early"
    release.set()
    assert hedge.second_requests == 1 and hedge.second_bytes == SIZE and next(calls) == 2


def test_a_failed_second_try_leaves_the_first_its_time() -> None:
    hedge, second_failed, calls = warmed(), threading.Event(), itertools.count()

    def read() -> str:
        if next(calls) == 0:
            assert second_failed.wait(30)
            return "late but right"
        second_failed.set()
        raise ConnectionError("reset")

    assert hedge.call(read, SIZE) == "late but right"


def test_two_failures_are_one_error() -> None:
    hedge, both = warmed(), threading.Barrier(2)

    def read() -> str:
        both.wait(30)
        raise ConnectionError("reset")

    with pytest.raises(ConnectionError):
        hedge.call(read, SIZE)


def test_sizes_that_were_never_read_are_not_hedged() -> None:
    in_which = warmed().call(threading.current_thread, 100 * SIZE)
    assert in_which is threading.current_thread(), "in a thread of its own it could be sent twice"


def test_what_is_fetched_shard_by_shard_is_never_asked_for_twice() -> None:
    hedge = Hedge()
    hedge._delay_s = lambda size: 0.0  # type: ignore[method-assign]  # every read counts as late
    for _ in range(3):
        hedge.call(lambda: time.sleep(0.002), MOST_BYTES + 1)
    assert (hedge.second_requests, hedge.second_bytes) == (0, 0)


def test_second_requests_are_few_even_when_everything_is_late() -> None:
    hedge = warmed()
    hedge._delay_s = lambda size: 0.0  # type: ignore[method-assign]  # every read counts as late
    reads = 60
    for _ in range(reads):
        hedge.call(lambda: time.sleep(0.002), SIZE)
    assert 1 <= hedge.second_requests <= BURST + SHARE * reads + 1


def test_a_stalled_range_read_does_not_delay_its_reader(s3_behind_proxy: S3Store, proxy: StoreProxy) -> None:
    s3_behind_proxy.put("k", bytes(range(250)) * 40)
    for number in range(LEAST_READS):
        s3_behind_proxy.get_range("k", number, SIZE)
    proxy.plan("stall", method="GET")
    with proxy.stalled() as released:
        assert s3_behind_proxy.get_range("k", 5, SIZE) == (bytes(range(250)) * 40)[5 : 5 + SIZE]
        assert not released.is_set() and proxy.seen.count("GET", fault="stall") == 1
