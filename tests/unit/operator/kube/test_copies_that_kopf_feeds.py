"""Copies that are listed by us and watched by kopf: nothing is lost between the two, in whatever order it comes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest

from lead_operator.kube.client import KubeClient
from lead_operator.kube.fed_informer import FedInformer
from lead_operator.kube.kinds import TRAINING_RUN, KubernetesObject


def a_run(version: int, name: str = "drive", uid: str = "u1") -> KubernetesObject:
    return {"metadata": {"name": name, "namespace": "team-a", "uid": uid, "resourceVersion": str(version)}}


class Server:
    """Lists what it holds; a list can be held back while events come."""

    def __init__(self, version: int, *runs: KubernetesObject) -> None:
        self.version, self.runs, self.lists = version, list(runs), 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def list(self, *_: Any, **__: Any) -> tuple[list[KubernetesObject], str]:
        self.lists += 1
        answer = list(self.runs), str(self.version)
        await self.may_answer.wait()
        return answer


Start = Callable[[Server], Awaitable[FedInformer]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts an informer of a server and waits for its first list."""
    tasks = []

    async def started(server: Server) -> FedInformer:
        informer = FedInformer(cast(KubeClient, server), TRAINING_RUN, "team-a")
        tasks.append(asyncio.create_task(informer.run()))
        await informer.synced.wait()
        return informer

    yield started
    for task in tasks:
        task.cancel()


def versions(informer: FedInformer) -> dict[str, str]:
    return {run["metadata"]["uid"]: run["metadata"]["resourceVersion"] for run in informer.all()}


async def test_kopf_watches_from_a_list_that_the_copies_hold(start: Start) -> None:
    server = Server(20, a_run(12))
    informer = await start(server)
    assert await informer.begin() == "20"
    assert server.lists == 1


async def test_a_watch_that_begins_again_begins_with_a_new_list(start: Start) -> None:
    """Between the two something may have gone that no event tells."""
    server = Server(20, a_run(12), a_run(13, "gone", "u2"))
    informer = await start(server)
    await informer.begin()
    server.version, server.runs = 30, [a_run(12)]
    assert await informer.begin() == "30"
    assert versions(informer) == {"u1": "12"}


async def test_events_during_a_list_are_taken_after_it(start: Start) -> None:
    server = Server(20, a_run(12), a_run(13, "gone", "u2"))
    informer = await start(server)
    server.may_answer.clear()
    again = asyncio.create_task(informer.begin())
    await informer.begin()
    while server.lists < 2:
        await asyncio.sleep(0)
    informer.take("DELETED", a_run(21, "gone", "u2"))
    informer.take("MODIFIED", a_run(22))
    server.may_answer.set()
    await again
    assert versions(informer) == {"u1": "22"}


async def test_an_event_that_a_list_has_told_already_brings_nothing_back(start: Start) -> None:
    informer = await start(Server(20))
    informer.take("MODIFIED", a_run(15))
    assert versions(informer) == {}


async def test_a_late_event_of_an_earlier_object_does_not_replace_the_next_of_its_name(start: Start) -> None:
    """kopf orders the events of one object, not those of two."""
    informer = await start(Server(20, a_run(12)))
    informer.take("ADDED", a_run(23, uid="u2"))
    informer.take("MODIFIED", a_run(21))
    informer.take("DELETED", a_run(22))
    assert versions(informer) == {"u2": "23"}


async def test_a_server_that_was_restored_to_an_older_state_is_believed(start: Start) -> None:
    server = Server(90, a_run(80))
    informer = await start(server)
    await informer.begin()
    server.version, server.runs = 30, [a_run(25)]
    await informer.begin()
    informer.take("MODIFIED", a_run(31))
    assert versions(informer) == {"u1": "31"}
