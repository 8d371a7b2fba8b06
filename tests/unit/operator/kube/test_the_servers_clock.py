"""Time is the API server's: a jump of the operator's own clock changes nothing, a jump of the server's is followed."""

from datetime import UTC, datetime, timedelta

import pytest

from lead_operator.kube.server_clock import ServerClock


@pytest.fixture
def clock() -> ServerClock:
    """A clock to which noon was told a minute ago by the machine's monotonic clock."""
    moments = iter([1000.0])
    clock = ServerClock(lambda: next(moments, 1060.0))
    clock.note("Thu, 01 Jan 2026 12:00:00 GMT")
    return clock


def test_time_goes_on_between_answers(clock: ServerClock) -> None:
    assert clock.now() == datetime(2026, 1, 1, 12, 1, tzinfo=UTC)


def test_an_answer_that_waited_does_not_turn_time_back(clock: ServerClock) -> None:
    clock.note("Thu, 01 Jan 2026 12:00:57 GMT")
    assert clock.now() == datetime(2026, 1, 1, 12, 1, tzinfo=UTC)


@pytest.mark.parametrize("hour", [11, 13])
def test_a_server_whose_clock_was_set_is_followed(clock: ServerClock, hour: int) -> None:
    clock.note(f"Thu, 01 Jan 2026 {hour}:00:00 GMT")
    assert clock.now() == datetime(2026, 1, 1, hour, 0, tzinfo=UTC)


@pytest.mark.parametrize("date", [None, "", "yesterday"])
def test_an_answer_without_a_date_is_passed_over(clock: ServerClock, date: str | None) -> None:
    clock.note(date)
    assert clock.now() == datetime(2026, 1, 1, 12, 1, tzinfo=UTC)


def test_before_the_first_answer_it_is_the_machines_time() -> None:
    assert abs(ServerClock().now() - datetime.now(UTC)) < timedelta(minutes=1)
