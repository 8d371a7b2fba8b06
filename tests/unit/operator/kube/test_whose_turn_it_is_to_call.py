"""How many passes go at a time, how many calls to the API server and how many in a second; what takes no turn."""

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from kubernetes.aio.client import ApiClient

from lead_operator.controllers.workers import Workers
from lead_operator.kube.client import KubeClient
from lead_operator.kube.kinds import LEASE, POD, ResourceKey
from lead_operator.kube.rate_limiter import CallRate, RateLimiter
from lead_operator.kube.work_queue import WorkQueue


class Quiet(KubeClient):
    """A client whose server answers when it is let; `under_way` counts the calls that have reached it."""

    def __init__(self, turns: RateLimiter) -> None:
        super().__init__(cast(ApiClient, SimpleNamespace()), turns)
        self.under_way = 0
        self.answers = asyncio.Event()

    async def _send(self, method: str, path: str, **asked: Any) -> aiohttp.ClientResponse:
        self.under_way += 1
        await self.answers.wait()
        raise OSError("the test is over")


async def started(client: Quiet, *calls: Any) -> int:
    """Returns how many of the calls reach the server before it answers one."""
    tasks = [asyncio.create_task(call) for call in calls]
    for _ in range(10):
        await asyncio.sleep(0)
    seen = client.under_way
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    return seen


async def watched(client: KubeClient) -> None:
    async for _ in client.watch(POD, "team-a", selector="", resource_version="1", timeout_s=60):
        pass


async def test_no_more_calls_are_under_way_than_are_allowed() -> None:
    client = Quiet(RateLimiter(in_flight=2))
    assert await started(client, *(client.get(POD, "team-a", str(number)) for number in range(5))) == 2


async def test_a_rate_holds_back_what_goes_beyond_one_second_of_it() -> None:
    client = Quiet(RateLimiter(in_flight=32, per_second=3))
    assert await started(client, *(client.get(POD, "team-a", str(number)) for number in range(9))) == 3


async def test_watches_and_leases_take_no_turn() -> None:
    client = Quiet(RateLimiter(in_flight=1, per_second=0.01))
    pods = [client.get(POD, "team-a", str(number)) for number in range(3)]
    leases = [client.get(LEASE, "team-a", str(number)) for number in range(3)]
    assert await started(client, *pods, *leases, watched(client), watched(client)) == 5


@pytest.mark.parametrize(
    ("per_second", "asked_at", "waits"),
    [
        (0, [5.0] * 100, [0.0] * 100),  # no limit
        (4, [5.0] * 6, [0.0, 0.0, 0.0, 0.0, 0.25, 0.5]),
        (4, [5.0] * 5 + [6.25] * 5, [0.0, 0.0, 0.0, 0.0, 0.25, 0.0, 0.0, 0.0, 0.0, 0.25]),  # full again
        (4, [5.0] * 4 + [5.5] * 3, [0.0] * 6 + [0.25]),  # half full again
    ],
)
def test_how_long_a_call_waits(per_second: float, asked_at: list[float], waits: list[float]) -> None:
    rate = CallRate(per_second)
    assert [rate.take(now) for now in asked_at] == waits


async def test_as_many_passes_go_at_a_time_as_there_are_workers() -> None:
    queue, going = WorkQueue[ResourceKey](lambda key: key.namespace, 3), 0

    async def for_ever(key: ResourceKey) -> None:
        nonlocal going
        going += 1
        await asyncio.Event().wait()

    async def work() -> None:
        async with asyncio.TaskGroup() as tasks:
            Workers(queue, for_ever).start(tasks)

    for number in range(9):
        queue.add(ResourceKey("TrainingRun", "team-a", str(number)))
    task = asyncio.create_task(work())
    for _ in range(30):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert going == 3
