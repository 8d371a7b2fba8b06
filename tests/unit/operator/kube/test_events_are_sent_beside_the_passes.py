"""A pass leaves its events to a task of their own, which sends of each reason one a minute, in order.

What had to wait for its minute is not lost, what is said again is counted, and what is left is sent at the end.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from lead_operator.decisions.plan import EventNote
from lead_operator.kube.api_errors import AlreadyExists, NotFound, Refused
from lead_operator.kube.client import KubeClient
from lead_operator.kube.event_recorder import EventLimits, EventRecorder
from lead_operator.memory import Memories
from lead_testing.makers import a_training_run


class FakeClient:
    """Takes events, slowly: one each time it is let."""

    def __init__(self, refuse: dict[str, Exception]) -> None:
        self.taken: list[str] = []
        self.expired = False  # what was said an hour ago is not there any more
        self.let = asyncio.Semaphore(0)
        self._refuse = refuse

    async def create(self, body: dict[str, Any]) -> dict[str, Any]:
        await self.let.acquire()
        self.taken.append(body["message"])
        if body["message"] in self._refuse:
            raise self._refuse[body["message"]]
        return body

    async def count_event(self, event: dict[str, Any]) -> None:
        await self.let.acquire()
        if self.expired:
            raise NotFound(404, "NotFound", "")
        self.taken.append(f"{event['message']} x{event['count']}")


HALF_A_SECOND = EventLimits(minute_s=0.5)


def a_recorder(
    limits: EventLimits | None = None, memories: Memories | None = None, **refuse: Exception
) -> tuple[EventRecorder, FakeClient]:
    client = FakeClient(refuse)
    return EventRecorder(cast(KubeClient, client), memories, limits), client


async def until(client: FakeClient, count: int) -> None:
    async with asyncio.timeout(60):
        while len(client.taken) < count:
            await asyncio.sleep(0)


async def test_no_pass_waits_for_an_event_and_a_refused_one_stops_none() -> None:
    recorder, client = a_recorder(said=AlreadyExists(409, "AlreadyExists", ""), bad=Refused(403, "Forbidden", ""))
    for message in ("said", "bad", "good"):
        say(recorder, message, reason=message)
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
        say(recorder, str(number), reason=f"Reason{number}")
    for _ in range(3):
        client.let.release()
    task.cancel()
    await asyncio.wait([task], timeout=60)
    assert client.taken == ["0", "1", "2"]


@asynccontextmanager
async def sending(recorder: EventRecorder, client: FakeClient) -> AsyncIterator[None]:
    """Sends beside what happens within; each event is taken at once."""
    client.let = asyncio.Semaphore(100)
    task = asyncio.create_task(recorder.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def say(recorder: EventRecorder, message: str, reason: str = "Unschedulable") -> None:
    recorder.record(a_training_run().identity, EventNote("Warning", reason, message))


async def test_of_one_reason_one_is_sent_a_minute_and_others_do_not_wait_for_it() -> None:
    recorder, client = a_recorder()
    async with sending(recorder, client):
        for number in range(9):
            say(recorder, str(number))
        say(recorder, "another", reason="Failed")
        await until(client, 2)
    assert client.taken == ["0", "another"]


async def test_the_newest_that_had_to_wait_is_sent_when_the_minute_is_over() -> None:
    recorder, client = a_recorder(HALF_A_SECOND)
    async with sending(recorder, client):
        begun = time.monotonic()
        for message in ("first", "old", "newest"):
            say(recorder, message)
        await until(client, 2)
        assert time.monotonic() - begun >= 0.5
        say(recorder, "the next minute's")
        await until(client, 3)
        assert time.monotonic() - begun >= 1.0
    assert client.taken == ["first", "newest", "the next minute's"]


async def test_what_stands_again_as_it_was_said_needs_no_event() -> None:
    recorder, client = a_recorder(HALF_A_SECOND)
    async with sending(recorder, client):
        for message in ("no room", "room", "no room"):
            say(recorder, message)
        say(recorder, "other", reason="Failed")
        say(recorder, "last", reason="Failed")  # sent after the minute of the first reason
        await until(client, 3)
    assert client.taken == ["no room", "other", "last"]


async def test_a_sentence_that_stays_true_is_counted_now_and_then() -> None:
    client, now_s = FakeClient({}), 1000.0
    recorder = EventRecorder(cast(KubeClient, client), now=lambda: now_s)
    async with sending(recorder, client):
        say(recorder, "quota")
        for later_s in (61.0, 300.0, 300.0):  # only a minute later, and twice as often as it is counted
            now_s += later_s
            say(recorder, "quota")
        await until(client, 3)
        client.expired, now_s = True, now_s + 300.0
        say(recorder, "quota")
        await until(client, 4)
    assert client.taken == ["quota", "quota x2", "quota x3", "quota"]


async def test_a_resource_that_is_gone_says_nothing_more() -> None:
    memories = Memories()
    recorder, client = a_recorder(HALF_A_SECOND, memories)
    async with sending(recorder, client):
        say(recorder, "first")
        say(recorder, "withheld")
        memories.forget(a_training_run().identity.uid)
        say(recorder, "of the next of its name", reason="Failed")
        say(recorder, "withheld after it", reason="Failed")
        await until(client, 3)
    assert client.taken == ["first", "of the next of its name", "withheld after it"]


async def test_an_event_on_its_way_when_the_operator_ends_is_sent_too() -> None:
    recorder, client = a_recorder()
    for message in ("at", "left"):
        say(recorder, message, reason=message)
    task = asyncio.create_task(recorder.run())
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    for _ in range(2):
        client.let.release()
    await asyncio.wait([task])
    assert client.taken == ["at", "left"]


async def test_events_that_nobody_takes_fill_no_memory() -> None:
    recorder, client = a_recorder(EventLimits(unsent=2))
    for number in range(5):
        say(recorder, str(number), reason=f"Reason{number}")
        client.let.release()
    task = asyncio.create_task(recorder.run())
    await until(client, 2)
    task.cancel()
    await asyncio.wait([task])
    assert client.taken == ["0", "1"]
