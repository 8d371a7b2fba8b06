"""Programs are built two at a time, and one that fails ends the wait at once."""

import threading
from functools import partial

import pytest

from lead_testing.local_cluster.side_by_side import run_side_by_side

SOON_S = 30.0


def test_every_job_runs_two_at_a_time_and_the_first_named_first() -> None:
    began, both = list[int](), threading.Barrier(2)

    def job(number: int) -> None:
        began.append(number)
        if number < 2:
            both.wait(SOON_S)  # broken unless two run at once

    run_side_by_side([partial(job, number) for number in range(5)], at_once=2)
    assert sorted(began[:2]) == [0, 1] and sorted(began) == [0, 1, 2, 3, 4]


def test_an_error_is_raised_while_another_job_runs() -> None:
    released = threading.Event()

    def fail() -> None:
        raise OSError("no room")

    try:
        with pytest.raises(OSError, match="no room"):
            run_side_by_side([lambda: released.wait(SOON_S), fail], at_once=2)
        assert not released.is_set()
    finally:
        released.set()
