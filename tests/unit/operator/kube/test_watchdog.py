"""A process that sees or does nothing any more ends; one whose server is away waits."""

import asyncio
import time
from typing import cast

import pytest

from lead_operator.handlers.startup import thin_settings
from lead_operator.kube.client import WATCH_GRACE_S, KubeClient
from lead_operator.kube.informer import LONGEST_PAUSE_S, Informer
from lead_operator.kube.kinds import POD
from lead_operator.kube.watchdog import SILENT_S, STALLED_S, Watchdog, WatchStalled

NO_CLIENT = cast(KubeClient, None)  # an informer that is not run makes no call


def an_informer(*, silent_s: float = 0.0, unreachable_s_ago: float = 1e6) -> Informer:
    informer = Informer(NO_CLIENT, POD, "team-a")
    informer.last_sign_of_life = time.monotonic() - silent_s
    informer.last_unreachable = time.monotonic() - unreachable_s_ago
    return informer


@pytest.mark.parametrize(
    ("silent_s", "unreachable_s_ago", "pass_s", "verdict"),
    [
        (0, 1e6, 0, ""),
        (SILENT_S - 30, 1e6, STALLED_S - 30, ""),
        (SILENT_S + 30, 1e6, 0, "watch of pods/team-a has been silent"),
        (SILENT_S + 900, 10, 0, ""),  # the server is away, and it is asked again and again
        (SILENT_S + 900, SILENT_S + 30, 0, "watch of pods/team-a has been silent"),
        (0, 1e6, STALLED_S + 30, "one pass has been going on"),
    ],
)
def test_only_silence_without_a_reason_is_deafness(
    silent_s: float, unreachable_s_ago: float, pass_s: float, verdict: str
) -> None:
    informers = [an_informer(), an_informer(silent_s=silent_s, unreachable_s_ago=unreachable_s_ago)]
    said = Watchdog(lambda: informers, lambda: pass_s).verdict()
    assert said.startswith(verdict) and bool(said) == bool(verdict)


async def test_deafness_ends_the_process() -> None:
    async with asyncio.timeout(60):
        with pytest.raises(WatchStalled, match="pods/team-a"):
            await Watchdog(lambda: [an_informer(silent_s=SILENT_S + 1)], lambda: 0.0).run()


def test_kopf_goes_on_asking_where_it_is_refused() -> None:
    tries = iter(thin_settings(60.0).networking.error_backoffs)  # where they end, kopf ends the process
    assert [next(tries) for _ in range(10_000)][-1] == LONGEST_PAUSE_S


def test_a_silent_watch_of_kopf_is_given_up_before_the_process_counts_as_deaf() -> None:
    watching = thin_settings(60.0).watching
    assert watching.server_timeout == 60
    assert watching.client_timeout == watching.inactivity_timeout == 60 + WATCH_GRACE_S
    assert watching.inactivity_timeout + LONGEST_PAUSE_S < SILENT_S
