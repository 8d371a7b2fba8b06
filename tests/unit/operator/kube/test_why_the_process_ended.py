"""A process that ends with 1 has said why in its last log line, whatever part of it failed."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from lead_operator.errors import SettingsError
from lead_operator.handlers.startup import run_operator
from lead_operator.kube.lease import LeaseLost
from lead_operator.kube.watchdog import WatchStalled
from lead_operator.settings import Settings
from lead_testing.makers import SETTINGS


def ending(end: Callable[[list[BaseException]], None]) -> tuple[int, list[Any]]:
    """Returns exit status and log of a process whose part `end` brings it about."""

    async def serve(_: Settings, failures: list[BaseException]) -> None:
        end(failures)

    with capture_logs() as lines:
        return asyncio.run(run_operator(SETTINGS, serve)), lines


def test_a_process_that_was_asked_to_end_ends_with_0() -> None:
    assert ending(lambda failures: None) == (0, [])


@pytest.mark.parametrize(
    "cause", [LeaseLost("b holds the lease lead/lead-operator"), WatchStalled("watch of pods is silent")]
)
def test_an_end_that_was_decided_is_one_line(cause: Exception) -> None:
    group = BaseExceptionGroup("unhandled errors in a TaskGroup", [cause])
    code, lines = ending(lambda failures: failures.append(group))
    assert (code, [line["event"] for line in lines]) == (1, ["operator_ends"])
    assert lines[0]["error"] == f"{type(cause).__name__}: {cause}"


def test_a_mistake_of_ours_has_its_traceback_before_the_last_line() -> None:
    group = BaseExceptionGroup("", [KeyError("metadata"), BaseExceptionGroup("", [LeaseLost("nobody holds it")])])
    code, lines = ending(lambda failures: failures.append(group))
    assert (code, [line["event"] for line in lines]) == (1, ["operator_failed", "operator_ends"])
    assert lines[0]["exc_info"] is group
    assert lines[1]["error"] == "KeyError: 'metadata'; LeaseLost: nobody holds it"


def test_an_error_of_kopf_itself_hides_neither_its_cause_nor_that_of_our_part() -> None:
    def end(failures: list[BaseException]) -> None:
        failures.append(LeaseLost("nobody holds it"))
        raise RuntimeError("kopf's task ended")

    code, lines = ending(end)
    assert (code, lines[-1]["event"]) == (1, "operator_ends")
    assert lines[-1]["error"] == "LeaseLost: nobody holds it; RuntimeError: kopf's task ended"


def test_a_server_that_cannot_listen_is_named() -> None:
    def end(_: list[BaseException]) -> None:
        raise OSError(98, "Address already in use")

    code, lines = ending(end)
    assert (code, lines[-1]["error"]) == (1, "OSError: [Errno 98] Address already in use")


def test_wrong_settings_stay_a_sentence_of_the_command_line() -> None:
    def end(_: list[BaseException]) -> None:
        raise SettingsError("LEAD_WORKERS is 0")

    with pytest.raises(SettingsError):
        ending(end)
