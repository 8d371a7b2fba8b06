"""A pass leaves its events to a task of their own, which sends each once, in order, and the last when it is ended."""

import asyncio
from typing import Any, cast

import pytest

from lead_operator.cluster.api_errors import AlreadyExists, Refused
from lead_operator.cluster.client import KubeClient
from lead_operator.cluster.event_recorder import BURST, EventRecorder
from lead_operator.decisions.plan import EventNote
from lead_testing.makers import a_run_body


class FakeClient:
    """Takes events, slowly: one each time it is let."""

    def __init__(self, refuse: dict[str, Exception]) -> None:
        self.taken: list[str] = []
        self.let = asyncio.Semaphore(0)
        self._refuse = refuse

    async def create(self, body: dict[str, Any]) -> dict[str, Any]:
        await self.let.acquire()
        self.taken.append(body["message"])
        if body["message"] in self._refuse:
            raise self._refuse[body["message"]]
        return body


def a_recorder(**refuse: Exception) -> tuple[EventRecorder, FakeClient]:
    client = FakeClient(refuse)
    return EventRecorder(cast(KubeClient, client)), client


async def until(client: FakeClient, count: int) -> None:
    async with asyncio.timeout(5):
        while len(client.taken) < count:
            await asyncio.sleep(0)


async def test_no_pass_waits_for_an_event_and_a_refused_one_stops_none() -> None:
    recorder, client = a_recorder(said=AlreadyExists(409, "AlreadyExists", ""), bad=Refused(403, "Forbidden", ""))
    for message in ("said", "bad", "good"):
        recorder.record(a_run_body(), EventNote("Normal", "Started", message))
    assert client.taken == []
    task = asyncio.create_task(recorder.run())
    for _ in range(3):
        client.let.release()
    await until(client, 3)
    assert client.taken == ["said", "bad", "good"]
    task.cancel()
    await asyncio.wait([task])


async def test_an_operator_that_ends_sends_what_is_left() -> None:
    recorder, client = a_recorder()
    task = asyncio.create_task(recorder.run())
    await asyncio.sleep(0)
    for number in range(3):
        recorder.record(a_run_body(), EventNote("Normal", "Started", str(number)))
    for _ in range(3):
        client.let.release()
    task.cancel()
    await asyncio.wait([task], timeout=5)
    assert client.taken == ["0", "1", "2"]


async def test_of_one_reason_only_so_many_are_sent_at_a_time() -> None:
    recorder, client = a_recorder()
    for number in range(3 * BURST):
        recorder.record(a_run_body(), EventNote("Warning", "Restarted", str(number)))
    recorder.record(a_run_body(), EventNote("Warning", "Failed", "another"))
    for _ in range(4 * BURST):
        client.let.release()
    task = asyncio.create_task(recorder.run())
    await until(client, BURST + 1)
    task.cancel()
    await asyncio.wait([task])
    assert client.taken == [*map(str, range(BURST)), "another"]


async def test_an_event_on_its_way_when_the_operator_ends_is_sent_too() -> None:
    recorder, client = a_recorder()
    for message in ("at", "left"):
        recorder.record(a_run_body(), EventNote("Normal", "Started", message))
    task = asyncio.create_task(recorder.run())
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    for _ in range(2):
        client.let.release()
    await asyncio.wait([task])
    assert client.taken == ["at", "left"]


async def test_events_that_nobody_takes_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lead_operator.cluster.event_recorder.MAX_UNSENT", 2)
    recorder, client = a_recorder()
    for number in range(BURST):
        recorder.record(a_run_body(), EventNote("Normal", "Started", str(number)))
        client.let.release()
    task = asyncio.create_task(recorder.run())
    await until(client, 2)
    task.cancel()
    await asyncio.wait([task])
    assert client.taken == ["0", "1"]
