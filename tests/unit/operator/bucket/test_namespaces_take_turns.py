"""A thousand things of one namespace keep none of another waiting: in the queue, at the API server, at the store."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from lead_operator.bucket.bucket_view import READS, BucketView
from lead_operator.decisions.plan import EventNote
from lead_operator.fair_turns import FairTurns, reserve_of
from lead_operator.kube.client import KubeClient
from lead_operator.kube.event_recorder import EventLimits, EventRecorder
from lead_operator.kube.informers import Informers
from lead_operator.kube.kinds import Kind, KubernetesObject, ResourceKey
from lead_operator.kube.work_queue import WorkQueue
from lead_operator.resources.body import Identity
from lead_operator.settings import StorageProfile
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import StoreDenied
from lead_testing.makers import PROFILE, SETTINGS


def a_key(namespace: str, number: int = 0) -> ResourceKey:
    return ResourceKey("TrainingRun", namespace, f"run-{number:04d}")


def a_queue(workers: int = 4) -> WorkQueue[ResourceKey]:
    return WorkQueue(lambda key: key.namespace, workers)


async def test_one_key_of_bob_waits_for_one_of_alice_and_not_for_a_thousand() -> None:
    """Audit: flood"""
    queue = a_queue()
    for number in range(1000):
        queue.add(a_key("alice", number))
    queue.add(a_key("bob"))
    taken = [await queue.get() for _ in range(2)]
    assert a_key("bob") in taken
    for key in taken:
        queue.done(key)
    assert [await queue.get() for _ in range(3)] == [a_key("alice", number) for number in (1, 2, 3)]


async def test_a_namespace_whose_passes_hang_holds_every_worker_but_those_of_others() -> None:
    """Audit: flood"""
    queue = a_queue(workers=4)
    for number in range(100):
        queue.add(a_key("alice", number))
    held = [asyncio.create_task(queue.get()) for _ in range(queue.tasks)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert sum(task.done() for task in held) == 4
    queue.add(a_key("bob"))
    queue.add(a_key("bob", 1))
    queue.add(a_key("carol"))
    for _ in range(20):
        await asyncio.sleep(0)
    taken = [task.result() for task in held if task.done()]
    assert len(taken) == 4 + reserve_of(4) and {key.namespace for key in taken[4:]} == {"bob", "carol"}


async def test_turns_that_are_given_up_are_not_lost() -> None:
    turns, order = FairTurns(1), list[str]()

    async def work(name: str) -> None:
        async with turns.turn("alice"):
            order.append(name)
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(work(str(number))) for number in range(6)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    tasks[3].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == ["0", "2", "4", "5"]
    async with asyncio.timeout(10), turns.turn("alice"):
        order.append("free")


async def test_a_turn_taken_from_a_call_that_is_cancelled_in_the_same_moment_goes_on() -> None:
    turns, entered = FairTurns(1), asyncio.Event()

    async def hold() -> None:
        async with turns.turn("alice"):
            await entered.wait()

    first, second = asyncio.create_task(hold()), asyncio.create_task(hold())
    for _ in range(3):
        await asyncio.sleep(0)
    entered.set()
    await first
    second.cancel()  # it has been told that it is its turn, and has not run since
    await asyncio.wait([second])
    async with asyncio.timeout(10):
        async with turns.turn("alice"):
            pass


class SlowFor(FolderStore):
    """A store that hangs for the records of alice, and refuses those of mallory."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.let_go = threading.Event()

    def list(self, prefix: str, *, start_after: str = "") -> Any:
        if "/alice/" in prefix:
            self.let_go.wait(60)
        if "/mallory/" in prefix:
            raise StoreDenied("no")
        return super().list(prefix, start_after=start_after)


async def look(view: BucketView, namespace: str, uid: str, profile: StorageProfile = PROFILE) -> Any:
    return await view.read_run(profile, namespace, uid, (), live=frozenset(), max_age_s=0)


async def test_a_store_that_hangs_for_one_namespace_answers_the_others(tmp_path: Path) -> None:
    """Audit: flood"""
    store = SlowFor(tmp_path)
    view = BucketView(SETTINGS, lambda profile: store)
    stuck = [asyncio.create_task(look(view, "alice", f"a{number}")) for number in range(3 * READS)]
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(30):
            assert (await look(view, "bob", "b")).error == ""
            assert (await look(view, "mallory", "m")).error == "StoreDenied: no"
            named = replace(PROFILE, name="named", operator_secret="lead-system/lead-s3-deletes")
            told = (await look(view, "mallory", "n", named)).error
            assert told.startswith(
                "StoreDenied: no; the operator's key is in Secret lead-s3-deletes of namespace lead-sys"
            )
            assert (await look(view, "bob", "b")).error == ""
        assert not any(task.done() for task in stuck)
    finally:
        store.let_go.set()
        await asyncio.gather(*stuck)
        view.close()


@pytest.mark.parametrize("flood", [50, EventLimits.unsent_of_one + 50])
async def test_an_event_of_bob_is_sent_before_the_second_of_alice(flood: int) -> None:
    """Audit: flood"""
    sent: list[str] = []

    class Taking:
        async def create(self, body: dict[str, Any]) -> dict[str, Any]:
            sent.append(body["metadata"]["namespace"])
            await asyncio.sleep(0)
            return body

    recorder = EventRecorder(cast(KubeClient, Taking()))
    for number in range(flood):
        recorder.record(a_resource("alice", number), EventNote("Warning", "Reason", "message"))
    recorder.record(a_resource("bob", 0), EventNote("Warning", "Reason", "message"))
    task = asyncio.create_task(recorder.run())
    async with asyncio.timeout(30):
        while "bob" not in sent:
            await asyncio.sleep(0)
    assert sent.index("bob") <= 1
    task.cancel()
    await asyncio.wait([task])


def a_resource(namespace: str, number: int) -> Identity:
    return Identity("TrainingRun", namespace, f"run-{number}", f"{namespace}-{number}", 1)


class SlowLists:
    """An API server whose lists of alice's namespace take long."""

    def __init__(self) -> None:
        self.done = asyncio.Event()

    async def list(self, kind: Kind, namespace: str, **_: Any) -> tuple[list[KubernetesObject], str]:
        if namespace == "alice":
            await self.done.wait()
        return [], "1"

    async def watch(self, kind: Kind, namespace: str, **_: Any) -> AsyncGenerator[tuple[str, KubernetesObject], None]:
        await asyncio.Event().wait()
        yield "BOOKMARK", {}


async def test_bob_is_served_before_all_of_alice_is_listed_and_she_once_it_is() -> None:
    """A new process begins with what it sees whole. Audit: flood"""
    server, asked = SlowLists(), list[ResourceKey]()
    informers = Informers(cast(KubeClient, server), ("alice", "bob"), SETTINGS, asked.append, asked.append)
    running = asyncio.create_task(_run(informers))
    async with asyncio.timeout(60):
        await informers.synced()
        assert informers.serves("bob") and not informers.serves("alice")
        informers.request_when_served(a_key("alice"))
        await informers.synced()
        assert asked == []
        server.done.set()
        while not asked:
            await asyncio.sleep(0)
    assert asked == [a_key("alice")] and informers.serves("alice")
    running.cancel()
    await asyncio.wait([running])


async def _run(informers: Informers) -> None:
    async with asyncio.TaskGroup() as tasks:
        informers.start(tasks)
