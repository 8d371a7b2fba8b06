"""What the process says of a namespace that the API server does not show any more, and how long it goes on so."""

from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from structlog.testing import capture_logs

from lead_operator import metrics
from lead_operator.controllers.manager import Manager
from lead_operator.handlers.health import start_health_server
from lead_operator.kube.api_errors import ApiError, NotFound, Refused
from lead_operator.kube.client import KubeClient
from lead_operator.kube.informer import Informer
from lead_operator.kube.kinds import TRAINING_RUN
from lead_operator.kube.server_clock import ServerClock
from lead_operator.kube.watchdog import SILENT_S, Watchdog
from lead_testing.makers import SETTINGS, a_run_body

FORBIDDEN = Refused(403, "Forbidden", "trainingruns.lead.dev is forbidden")
NO_CLIENT = cast(KubeClient, None)  # nothing here makes a call


def an_operator(*namespaces: str) -> Manager:
    client = cast(KubeClient, SimpleNamespace(clock=ServerClock()))
    client.clock.note("Thu, 01 Jan 2026 12:00:30 GMT")
    operator = Manager(client, replace(SETTINGS, run_namespaces=namespaces))
    for informer in operator.informers.vital:
        informer.synced.set()
    return operator


def refuse(operator: Manager, namespace: str, why: str = str(FORBIDDEN)) -> None:
    for informer in operator.informers.vital:
        informer.refused = why if informer.namespace == namespace else informer.refused


def hear(operator: Manager, namespace: str, at_s: float) -> None:
    for informer in operator.informers.vital:
        if informer.namespace == namespace:
            informer.last_sign_of_life = at_s


def test_a_namespace_lost_for_hours_does_not_end_a_process_that_just_lost_another() -> None:
    operator, now_s = an_operator("team-a", "team-b"), 1e6
    watchdog = Watchdog(lambda: operator.informers.awaited, lambda: 0.0, lambda: now_s)
    hear(operator, "team-a", now_s)
    hear(operator, "team-b", now_s)
    assert watchdog.verdict() == ""
    refuse(operator, "team-b")
    for _ in range(10):
        now_s += 3600
        hear(operator, "team-a", now_s)
        assert watchdog.verdict() == ""
    refuse(operator, "team-a")
    now_s += 5
    assert watchdog.verdict() == ""
    now_s += SILENT_S + 1
    assert "has been silent" in watchdog.verdict()


@pytest.fixture
async def page() -> AsyncIterator[Any]:
    runners = []

    async def ready(operator: Manager) -> tuple[int, str]:
        runners.append(await start_health_server(operator, 0))
        port = next(address[1] for address in runners[-1].addresses if address[0] == "0.0.0.0")
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/readyz") as answer:
            return answer.status, await answer.text()

    yield ready
    for runner in runners:
        await runner.cleanup()


async def test_the_page_names_the_only_namespace_too(page: Any) -> None:
    operator = an_operator("team-a")
    assert await page(operator) == (200, "ok")
    refuse(operator, "team-a")
    assert await page(operator) == (200, f"ok; not served: team-a: {FORBIDDEN}")


def test_the_age_of_progress_is_by_the_servers_clock_and_of_runs_that_are_seen() -> None:
    operator = an_operator("team-a", "team-b")
    run = a_run_body()
    run["metadata"] |= {"resourceVersion": "7"}
    progress = {"reportedAt": "2026-01-01T12:00:00Z"}
    entry = {"name": "train", "seed": 0, "phase": "Running", "progress": progress}
    run["status"] = {"phase": "Running", "stages": [entry]}
    operator.informers.of(TRAINING_RUN, "team-a").note_own_write(run)

    def age_s() -> float | None:
        operator.refresh_metrics()
        labels = {"namespace": "team-a", "run": run["metadata"]["name"], "stage": "train", "seed": "0"}
        return metrics.REGISTRY.get_sample_value("lead_run_report_age_seconds", labels)

    assert age_s() == pytest.approx(30, abs=5)
    refuse(operator, "team-a")
    assert age_s() is None


@pytest.mark.parametrize(
    ("error", "told"),
    [(FORBIDDEN, "run helm upgrade"), (NotFound(404, "NotFound", "no such resource"), "kubectl apply -f crds/")],
)
def test_what_helps_depends_on_what_is_gone(error: ApiError, told: str) -> None:
    with capture_logs() as logs:
        Informer(NO_CLIENT, TRAINING_RUN, "team-a")._note_refusal(error)
    assert told in logs[0]["remedy"]
