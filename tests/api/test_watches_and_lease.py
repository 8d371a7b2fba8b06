"""The informer, the lease and the watchdog against a real API server, over a wire that can go silent."""

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kopf
import pytest
import yaml

from lead_operator.handlers import startup
from lead_operator.handlers.bounded_session import with_bounded_session
from lead_operator.handlers.handlers import register_kinds
from lead_operator.kube.client import CallTimes, KubeClient
from lead_operator.kube.fed_informer import FedInformer
from lead_operator.kube.informer import Informer
from lead_operator.kube.informers import Informers
from lead_operator.kube.kinds import DATASET_CACHE, SERVICE, KubernetesObject
from lead_operator.kube.lease import Lease, LeaseLost, LeaseTimes
from lead_operator.kube.watchdog import Watchdog
from lead_testing.local_cluster.control_plane import ControlPlane
from lead_testing.makers import SETTINGS
from lead_testing.manifests import a_dataset_cache
from lead_testing.wire import Wire


@pytest.fixture
async def wire(control_plane: ControlPlane) -> AsyncIterator[Wire]:
    control_plane.start_apiserver()
    async with Wire(urlsplit(control_plane.url).port or 0) as wire:
        yield wire


@pytest.fixture
async def client(
    control_plane: ControlPlane, wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[KubeClient]:
    document = yaml.safe_load(control_plane.kubeconfig.read_text())
    document["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{wire.port}"
    (tmp_path / "kubeconfig").write_text(json.dumps(document))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    # A crowded machine is no silent server.
    client = await KubeClient.connect(times=CallTimes(call_s=2.0, watch_grace_s=5.0))
    yield client
    await client.close()


@pytest.fixture
def namespace(control_plane: ControlPlane) -> str:
    name = f"w{secrets.token_hex(4)}"
    control_plane.kubectl("create", "namespace", name)
    return name


def a_service(namespace: str, name: str) -> KubernetesObject:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}]}}


async def until(condition: Callable[[], object], within_s: float = 30.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.02)


async def test_a_watch_that_goes_silent_is_given_up_and_nothing_is_missed(
    control_plane: ControlPlane, wire: Wire, client: KubeClient, namespace: str
) -> None:
    informer = Informer(client, SERVICE, namespace, watch_s=2.0)
    task = asyncio.create_task(informer.run())
    await client.create(a_service(namespace, "before"))
    await until(lambda: informer.get(namespace, "before"))
    wire.silence()
    await asyncio.to_thread(control_plane.kubectl, "-n", namespace, "delete", "service", "before")
    await asyncio.to_thread(
        control_plane.kubectl, "-n", namespace, "create", "-f", "-", stdin=json.dumps(a_service(namespace, "after"))
    )
    await until(lambda: informer.get(namespace, "after") and not informer.get(namespace, "before"))
    task.cancel()


@asynccontextmanager
async def fed_by_kopf(client: KubeClient, namespace: str) -> AsyncIterator[FedInformer]:
    """Copies of DatasetCaches that kopf watches, 2 s a watch. No fixture: kopf cancels tasks younger than its own."""
    informers = Informers(client, (namespace,), replace(SETTINGS, resync_s=2.0), lambda key: None, lambda key: None)
    informer = informers.fed(DATASET_CACHE, namespace)
    assert informer is not None
    registry, settings = kopf.OperatorRegistry(), startup.thin_settings(2.0)
    settings.watching.client_timeout = settings.watching.inactivity_timeout = 7.0

    @kopf.on.login(registry=registry)  # type: ignore[untyped-decorator]
    async def login(**arguments: Any) -> kopf.AiohttpSession:
        return with_bounded_session(kopf.login_with_kubeconfig(**arguments), informers.fed_at)

    register_kinds(registry, informers)
    watching = kopf.operator(registry=registry, settings=settings, standalone=True, namespaces=[namespace])
    tasks = [asyncio.create_task(work) for work in (watching, *(each.run() for each in informers.vital))]
    yield informer
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=30)


def a_cache(name: str) -> str:
    body = a_dataset_cache(name, "datasets/town")
    return json.dumps({**body, "metadata": {"name": name}})


async def test_kopfs_watch_tells_what_comes_and_goes_and_a_silent_one_is_given_up(
    control_plane: ControlPlane, wire: Wire, client: KubeClient, namespace: str
) -> None:
    async def kubectl(*words: str, stdin: str = "") -> None:
        await asyncio.to_thread(control_plane.kubectl, "-n", namespace, *words, stdin=stdin)

    async with fed_by_kopf(client, namespace) as fed:
        await kubectl("create", "-f", "-", stdin=a_cache("before"))
        await until(lambda: fed.get(namespace, "before"))
        version = fed.get(namespace, "before")["metadata"]["resourceVersion"]  # type: ignore[index]
        await kubectl("label", "dsc", "before", "a=b")
        await until(lambda: fed.get(namespace, "before")["metadata"]["resourceVersion"] != version)  # type: ignore[index]
        wire.silence()
        await kubectl("delete", "dsc", "before")
        await kubectl("create", "-f", "-", stdin=a_cache("after"))
        await until(lambda: fed.get(namespace, "after") and not fed.get(namespace, "before"), within_s=60.0)
        await kubectl("delete", "dsc", "after")
        await until(lambda: not fed.get(namespace, "after"))


async def test_kopfs_watch_of_a_server_that_came_back_is_resumed(
    control_plane: ControlPlane, client: KubeClient, namespace: str
) -> None:
    async with fed_by_kopf(client, namespace) as fed:
        await until(fed.synced.is_set)
        control_plane.kill_apiserver()
        control_plane.start_apiserver()
        await asyncio.to_thread(control_plane.kubectl, "-n", namespace, "create", "-f", "-", stdin=a_cache("later"))
        await until(lambda: fed.get(namespace, "later"), within_s=60.0)


async def test_a_server_behind_a_dead_wire_is_away_and_no_reason_to_end(
    wire: Wire, client: KubeClient, namespace: str
) -> None:
    informer = Informer(client, SERVICE, namespace, watch_s=1.0)
    task = asyncio.create_task(informer.run())
    await until(informer.synced.is_set)
    wire.cut()
    await until(lambda: informer.last_unreachable > informer.last_sign_of_life)
    assert Watchdog(lambda: [informer], lambda: 0.0).verdict() == ""
    silent_since = informer.last_sign_of_life
    wire.mend()
    await until(lambda: informer.last_sign_of_life > silent_since)
    task.cancel()


async def test_a_watch_from_a_forgotten_version_begins_with_a_new_list(
    control_plane: ControlPlane, client: KubeClient, namespace: str
) -> None:
    class LongAway(KubeClient):
        """A client whose first list is as old as the cluster."""

        lists = 0

        async def list(self, *arguments: Any, **asked: Any) -> tuple[list[KubernetesObject], str]:
            self.lists += 1
            items, version = await super().list(*arguments, **asked)
            return ([], "1") if self.lists == 1 else (items, version)

    away = LongAway(client._api)
    await client.create(a_service(namespace, "there"))
    control_plane.stop_apiserver()
    control_plane.start_apiserver()  # a young one remembers nothing from before it was started
    informer = Informer(away, SERVICE, namespace)
    task = asyncio.create_task(informer.run())
    await until(lambda: informer.get(namespace, "there"))
    assert away.lists == 2  # at once, not after the time between two lists
    task.cancel()


class Counting(KubeClient):
    """A client that counts its lists and its watches, and can keep events to itself."""

    lists = watches = 0
    hidden = ""  # no event of this object is passed on

    async def list(self, *arguments: Any, **asked: Any) -> tuple[list[KubernetesObject], str]:
        self.lists += 1
        return await super().list(*arguments, **asked)

    async def watch(self, *arguments: Any, **asked: Any) -> AsyncGenerator[tuple[str, KubernetesObject], None]:
        self.watches += 1
        async with aclosing(super().watch(*arguments, **asked)) as changes:
            async for change, body in changes:
                if change == "BOOKMARK" or body["metadata"]["name"] != self.hidden:
                    yield change, body


async def test_many_watches_follow_one_list_and_miss_nothing(
    control_plane: ControlPlane, client: KubeClient, namespace: str
) -> None:
    counting = Counting(client._api)
    informer = Informer(counting, SERVICE, namespace, watch_s=1.0)
    task = asyncio.create_task(informer.run())
    for number in range(4):
        before = counting.watches
        await client.create(a_service(namespace, f"s{number}"))
        if number:
            await asyncio.to_thread(control_plane.kubectl, "-n", namespace, "delete", "service", f"s{number - 1}")
        await until(lambda before=before: counting.watches > before + 1)  # type: ignore[misc]
    await until(lambda: [s["metadata"]["name"] for s in informer.all()] == ["s3"])
    assert (counting.lists, counting.watches >= 8) == (1, True)
    task.cancel()


async def test_a_delete_that_no_watch_told_heals_at_the_next_comparison_or_connection(
    control_plane: ControlPlane, client: KubeClient, namespace: str
) -> None:
    counting = Counting(client._api)
    counting.hidden = "ghost"
    await client.create(a_service(namespace, "ghost"))
    compared = Informer(counting, SERVICE, namespace, watch_s=1.0, relist_s=5.0)
    broken = Informer(counting, SERVICE, namespace, watch_s=60.0)
    tasks = [asyncio.create_task(informer.run()) for informer in (compared, broken)]
    await until(lambda: compared.get(namespace, "ghost") and broken.get(namespace, "ghost"))
    await asyncio.to_thread(control_plane.kubectl, "-n", namespace, "delete", "service", "ghost")
    await until(lambda: not compared.get(namespace, "ghost"))
    assert broken.get(namespace, "ghost")
    control_plane.kill_apiserver()
    control_plane.start_apiserver()
    await until(lambda: not broken.get(namespace, "ghost"))
    for task in tasks:
        task.cancel()


async def test_of_two_one_holds_the_lease_and_the_other_gets_it_when_it_is_given_back(
    client: KubeClient, namespace: str
) -> None:
    first, second = (Lease(client, namespace, "lead", name, LeaseTimes(retry_s=0.1)) for name in ("first", "second"))
    await first.acquire()
    waiting = asyncio.create_task(second.acquire())
    keeping = asyncio.create_task(first.keep())
    done, _ = await asyncio.wait([waiting, keeping], timeout=1.0)
    assert not done, "the second waits while the first renews"
    keeping.cancel()
    await first.release()
    await asyncio.wait_for(waiting, 10)


async def test_a_lease_whose_holder_died_is_taken_over_and_the_dead_one_loses_it(
    client: KubeClient, namespace: str
) -> None:
    times = LeaseTimes(duration_s=1.0, retry_s=0.1)
    first, second = (Lease(client, namespace, "lead", name, times) for name in ("first", "second"))
    await first.acquire()
    await asyncio.wait_for(second.acquire(), 20)
    with pytest.raises(LeaseLost, match="second holds"):
        await asyncio.wait_for(first.keep(), 10)


async def test_a_holder_that_cannot_renew_gives_up_before_another_may_begin(
    wire: Wire, client: KubeClient, namespace: str
) -> None:
    assert LeaseTimes().renew_deadline_s < LeaseTimes().duration_s
    lease = Lease(client, namespace, "lead", "first", LeaseTimes(renew_deadline_s=2.0, retry_s=0.1))
    await lease.acquire()
    wire.cut()
    with pytest.raises(LeaseLost, match="not renewed"):
        await asyncio.wait_for(lease.keep(), 20)
