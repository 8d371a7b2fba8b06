"""Temporary credentials over their life: a clock that is turned by hand, an STS that is away, threads that all ask."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from lead_protocol.store.credentials import Credentials
from lead_protocol.store.object_store import StoreDenied
from lead_protocol.store.renewed_credentials import REFUSED_S, RenewedCredentials, Session
from lead_protocol.store.s3_answers import TryAgain

HOUR_S = 3600.0


@dataclass
class Sts:
    """Gives numbered credentials, or fails as the test says."""

    life_s: float = HOUR_S
    now: float = 1000.0
    failure: Callable[[], Exception] | None = None
    asked_at: list[float] = field(default_factory=list)

    def obtain(self, timeout_s: float) -> Session:
        self.asked_at.append(self.now)
        if self.failure is not None:
            raise self.failure()
        return Session(Credentials(f"key-{len(self.asked_at)}", "secret", "token"), self.life_s)

    def credentials(self, seed: int = 0) -> RenewedCredentials:
        return RenewedCredentials(self.obtain, "role credentials", clock=lambda: self.now, jitter=random.Random(seed))


def away() -> TryAgain:
    return TryAgain("the STS is away", uncertain=False)


def refused() -> StoreDenied:
    return StoreDenied("the STS answered 400", of_key=True)


def test_they_are_renewed_once_at_about_two_thirds_of_their_life() -> None:
    sts = Sts()
    credentials = sts.credentials()
    assert credentials.current(1).access_key == "key-1"
    sts.now += 0.5 * HOUR_S
    assert credentials.current(1).access_key == "key-1"
    sts.now += 0.3 * HOUR_S
    assert credentials.current(1).access_key == "key-2"
    assert credentials.current(1).access_key == "key-2"
    assert len(sts.asked_at) == 2


def test_sixty_four_pods_do_not_renew_at_once() -> None:
    def renewed_after_s(seed: int) -> float:
        sts = Sts(now=0.0)
        credentials = sts.credentials(seed)
        while len(sts.asked_at) < 2:
            credentials.current(1)
            sts.now += 10
        return sts.asked_at[1]

    times = [renewed_after_s(seed) for seed in range(64)]
    assert min(times) >= 0.5 * HOUR_S and max(times) <= 0.8 * HOUR_S
    minutes = [int(time_s // 60) for time_s in times]
    assert max(minutes.count(minute) for minute in minutes) < 16


def test_an_sts_that_is_away_for_ten_minutes_costs_nothing() -> None:
    """The old credentials are used, and the STS is asked again with growing pauses, not with every request."""
    sts = Sts()
    credentials = sts.credentials()
    credentials.current(1)
    sts.now += 0.8 * HOUR_S
    sts.failure = away
    for _ in range(600):  # a request a second
        assert credentials.current(1).access_key == "key-1"
        sts.now += 1
    assert 5 <= len(sts.asked_at) - 1 <= 30
    sts.failure = None
    sts.now += 60
    assert credentials.current(1).access_key not in ("", "key-1")


def test_a_refusal_too_leaves_the_old_ones_until_they_end() -> None:
    sts = Sts()
    credentials = sts.credentials()
    credentials.current(1)
    sts.failure = refused
    sts.now += 0.9 * HOUR_S
    assert credentials.current(1).access_key == "key-1"


def test_without_good_credentials_every_call_waits_as_for_a_store_that_is_away() -> None:
    sts = Sts(failure=away)
    credentials = sts.credentials()
    for _ in range(100):
        with pytest.raises(TryAgain, match="the STS is away"):
            credentials.current(1)
        sts.now += 0.1
    assert len(sts.asked_at) <= 12  # of its own pauses, however often it is called
    sts.failure = None
    sts.now += 6
    assert credentials.current(1).secret_key == "secret"


def test_the_long_pauses_of_good_credentials_end_with_them() -> None:
    sts = Sts()
    credentials = sts.credentials()
    credentials.current(1)
    sts.failure = away
    sts.now += HOUR_S - 30
    for _ in range(20):  # the pauses have grown beyond the end
        credentials.current(1)
        sts.now += 1
    sts.failure = None
    sts.now += 6
    assert credentials.current(1).access_key != "key-1"


def test_credentials_that_another_thread_finds_refused_meanwhile_disturb_no_renewal() -> None:
    sts = Sts()
    credentials = sts.credentials()
    first = credentials.current(1)

    def failure() -> TryAgain:
        credentials.replaced(first, of_key=True, since=float("inf"))
        return away()

    sts.failure = failure
    sts.now += 0.8 * HOUR_S
    assert credentials.current(1) == first
    sts.failure = None
    sts.now += 60
    assert credentials.current(1) != first


def test_credentials_that_have_ended_are_not_used() -> None:
    sts = Sts()
    credentials = sts.credentials()
    credentials.current(1)
    sts.now += HOUR_S - 5
    sts.failure = away
    with pytest.raises(TryAgain):
        credentials.current(1)


def test_a_first_refusal_is_believed_after_a_while_because_an_identity_provider_may_still_start() -> None:
    sts = Sts(failure=refused)
    credentials = sts.credentials()
    with pytest.raises(TryAgain):
        credentials.current(1)
    sts.now += REFUSED_S + 1
    with pytest.raises(StoreDenied, match="answered 400"):
        credentials.current(1)


def test_a_refusal_that_was_interrupted_counts_anew() -> None:
    sts = Sts(failure=refused)
    credentials = sts.credentials()
    for failure in (refused, away, refused):
        sts.failure = failure
        with pytest.raises(TryAgain):
            credentials.current(1)
        sts.now += REFUSED_S - 1


def test_refused_ones_are_replaced_once_for_a_call() -> None:
    sts = Sts()
    credentials = sts.credentials()
    first, since = credentials.current(1), sts.now + 60
    sts.now += 60
    assert credentials.replaced(first, of_key=True, since=since)
    second = credentials.current(1)
    assert second != first
    assert credentials.replaced(first, of_key=True, since=since)  # another thread's call, which has the old ones
    sts.now += 1
    assert not credentials.replaced(second, of_key=True, since=since)
    assert credentials.current(1) == second
    assert len(sts.asked_at) == 2


def test_what_a_good_key_may_not_do_replaces_nothing() -> None:
    sts = Sts()
    credentials = sts.credentials()
    found = credentials.current(1)
    sts.now += 60
    assert not credentials.replaced(found, of_key=False, since=sts.now)
    assert not credentials.replaced(found, of_key=None, since=sts.now)  # so young: it is what they may not do
    assert len(sts.asked_at) == 1
    sts.now += 600
    assert credentials.replaced(found, of_key=None, since=sts.now)
    assert len(sts.asked_at) == 2


def test_a_denial_without_a_cause_takes_no_good_credentials_away_while_the_sts_is_away() -> None:
    sts = Sts()
    credentials = sts.credentials()
    found = credentials.current(1)
    sts.now += 600
    sts.failure = away
    assert not credentials.replaced(found, of_key=None, since=sts.now)
    assert credentials.current(1) == found


def test_very_short_lives_are_used_and_very_long_ones_are_renewed_by_the_clock() -> None:
    sts = Sts(life_s=4.0)
    credentials = sts.credentials()
    assert credentials.current(1) == credentials.current(1)
    assert len(sts.asked_at) == 1


def test_threads_ask_once_together() -> None:
    sts = Sts()
    begun, go_on = threading.Event(), threading.Event()

    def slow(timeout_s: float) -> Session:
        begun.set()
        go_on.wait(20)
        return sts.obtain(timeout_s)

    credentials = RenewedCredentials(slow, "role credentials", clock=lambda: sts.now)
    with ThreadPoolExecutor(16) as pool:
        calls = [pool.submit(credentials.current, 20.0) for _ in range(16)]
        assert begun.wait(20)
        go_on.set()
        assert {call.result(20).access_key for call in calls} == {"key-1"}
    begun.clear()
    go_on.clear()
    sts.now += 0.8 * HOUR_S
    with ThreadPoolExecutor(1) as pool:
        renewal = pool.submit(credentials.current, 20.0)
        assert begun.wait(20)
        assert {credentials.current(20.0).access_key for _ in range(100)} == {"key-1"}  # nobody waits for the renewal
        go_on.set()
        assert renewal.result(20).access_key == "key-2"


def test_a_thread_that_waits_for_anothers_exchange_keeps_its_own_deadline() -> None:
    go_on = threading.Event()

    def never(timeout_s: float) -> Session:
        go_on.wait(20)
        raise away()

    credentials = RenewedCredentials(never, "role credentials")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(credentials.current, 20.0)
        while not credentials._renewal[1].locked():
            assert not first.done()
        with pytest.raises(TryAgain, match="another thread still asks for the role credentials"):
            credentials.current(0.05)
        go_on.set()
        assert isinstance(first.exception(20), TryAgain)
