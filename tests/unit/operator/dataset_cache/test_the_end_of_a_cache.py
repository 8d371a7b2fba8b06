"""A deleted DatasetCache with `retain: Delete`, pass after pass: whom it waits for, what it removes, what it says."""

import asyncio
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lead_operator.bucket.cache_data_gc import CacheDataGC
from lead_operator.bucket.store_backoff import StoreBackoff
from lead_operator.controllers.apply import Applier
from lead_operator.controllers.cache_finalizer import CacheFinalizer
from lead_operator.decisions.plan import Plan
from lead_operator.kube.api_errors import Refused
from lead_operator.kube.client import KubeClient
from lead_operator.kube.informers import Informers
from lead_operator.kube.kinds import DATASET_CACHE, POD, TRAINING_RUN, KubernetesObject
from lead_operator.names import CACHE_DATA_FINALIZER
from lead_operator.resources.crd_defaults import fill_defaults
from lead_operator.resources.dataset_cache import parse_dataset_cache
from lead_operator.resources.stored import Stored, read_stored
from lead_protocol.object_keys import BuildKeys, CacheKeys
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import StoreDenied, StoreUnavailable
from lead_testing.makers import CACHE_UID, NOW, SETTINGS, a_cache_body, a_run_body

OLD, NEW = "a1" * 32, "b2" * 32
KEYS = BuildKeys("team-a", CACHE_UID)


class World:
    """The copies, the bucket and the API server that one cache's last passes see."""

    def __init__(self, folder: Path, pause_s: float = 0.0) -> None:
        self.store = FolderStore(folder)
        self.plans: list[Plan] = []
        self.finalizers: list[bool] = []
        self.live_pods: list[KubernetesObject] = []
        self.denied: list[str] = []
        self.namespace_goes = False
        self.informers = Informers(
            cast(KubeClient, None), ("team-a", "team-b"), SETTINGS, lambda key: None, lambda key: None
        )
        for informer in self.informers.vital:
            informer.synced.set()
        self.now_s, self.pause_s = 1000.0, pause_s
        self.removal = CacheDataGC(
            lambda profile: self.store,
            lambda profile: self.denied.append(profile.name),
            StoreBackoff(pause_s, lambda: self.now_s),
        )
        self.body = {**a_cache_body(retain="Delete"), "status": {"phase": "Ready", "digest": NEW}}
        self.body["metadata"] |= {"deletionTimestamp": "2026-01-01T13:00:00Z", "finalizers": [CACHE_DATA_FINALIZER]}
        self.end = CacheFinalizer(
            cast(KubeClient, self), self.informers, self.removal,
            cast(Applier, self), SETTINGS,
        )  # fmt: skip
        for generation, digest in enumerate((OLD, NEW), 1):
            self.store.put(KEYS.result(generation), f'{{"digest": "{digest}"}}'.encode())
            self.store.put(KEYS.control.published(generation), f'{{"digest": "{digest}"}}'.encode())
            self.store.put(CacheKeys("team-a", digest).manifest, b"{}")

    @property
    def clock(self) -> SimpleNamespace:
        def now() -> datetime:
            return NOW

        return SimpleNamespace(now=now)

    async def list(self, kind: object, namespace: str, **_: Any) -> tuple[list[KubernetesObject], str]:
        """The API server's answer, where copies may be late."""
        return self.live_pods, "9"

    async def would_create(self, body: KubernetesObject) -> None:
        """Refuses where the namespace is being deleted."""
        if self.namespace_goes:
            text = "unable to create new content in namespace team-a because it is being terminated"
            raise Refused(403, "Forbidden", text)

    async def apply(self, kind: object, stored: Stored, plan: Plan) -> float | None:
        """Takes a plan as the applier does."""
        fill_defaults({**a_cache_body(), "status": plan.status})
        self.plans.append(plan)
        self.body["status"] = plan.status
        return plan.requeue_after_s

    async def set_finalizer(self, kind: object, stored: Stored, wanted: bool) -> Stored:
        """Takes a changed finalizer as the applier does."""
        self.finalizers.append(wanted)
        return stored

    async def step(self) -> float | None:
        """One pass."""
        self.informers.of(DATASET_CACHE, "team-a").note_own_write(_stored(self.body))
        return await self.end.step(parse_dataset_cache(self.body), read_stored(self.body, DATASET_CACHE.kind))

    async def to_the_end(self) -> None:
        """Passes until the cache may go."""
        for _ in range(20):
            if await self.step() is None:
                return
        raise AssertionError(f"it never ends: {self.plans[-1].status}")

    def left(self) -> tuple[str, ...]:
        """Everything in the bucket."""
        return tuple(info.key for info in self.store.list(""))


def _stored(body: KubernetesObject) -> KubernetesObject:
    metadata = {"resourceVersion": "7", **body["metadata"]}
    return {**body, "metadata": metadata}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_a_run_that_trains_from_an_earlier_build_keeps_its_data_and_all_records(world: World) -> None:
    run = _stored({**a_run_body(), "status": {"datasets": [{"name": "towns", "digest": OLD}]}})
    world.informers.of(TRAINING_RUN, "team-a").note_own_write(run)
    before = world.left()
    assert await world.step() is not None
    assert world.plans[-1].status["reason"] == "InUse"
    assert (world.left(), world.finalizers) == (before, [])
    world.informers.of(TRAINING_RUN, "team-a").forget("team-a", run["metadata"]["name"])
    await world.to_the_end()
    assert (world.left(), world.finalizers) == ((), [False])


async def test_users_are_found_although_the_status_names_no_digest(world: World) -> None:
    world.body["status"] = {"phase": "Building"}
    other = _stored({**a_cache_body(), "status": {"digest": NEW}})
    other["metadata"] |= {"name": "other", "uid": "another"}
    world.informers.of(DATASET_CACHE, "team-a").note_own_write(other)
    await world.step()
    assert "DatasetCache team-a/other" in world.plans[-1].status["conditions"][0]["message"]


async def test_a_cache_whose_owner_wants_the_data_kept_after_all_leaves_them(world: World) -> None:
    world.body["spec"]["retain"] = "Retain"
    before = world.left()
    assert await world.step() is None
    assert (world.left(), world.finalizers, world.plans) == (before, [False], [])


async def test_what_a_build_without_a_result_has_left_goes_too(world: World) -> None:
    failed = "c3" * 32
    world.store.put(KEYS.progress(3, 0), f'{{"digest": "{failed}", "phase": "Failed"}}'.encode())
    world.store.put(CacheKeys("team-a", failed).shard(0, "0" * 64), b"x")
    await world.to_the_end()
    assert world.left() == ()


async def test_a_build_pod_that_no_copy_shows_yet_is_waited_for(world: World) -> None:
    owner = {"kind": "DatasetCache", "name": "towns", "uid": CACHE_UID, "controller": True}
    metadata = {"name": "towns-build-g1-a1-0", "namespace": "team-a", "uid": "p1", "resourceVersion": "8",
                "labels": {"lead.dev/role": "build"}, "ownerReferences": [owner]}  # fmt: skip
    pod: KubernetesObject = {"metadata": metadata, "spec": {"nodeName": ""}, "status": {"phase": "Running"}}
    world.live_pods = [pod]
    before = world.left()
    await world.step()
    assert [found.name for found in world.plans[-1].deletes] == ["towns-build-g1-a1-0"]
    assert world.left() == before
    world.informers.of(POD, "team-a").forget("team-a", "towns-build-g1-a1-0")
    world.live_pods = []
    await world.to_the_end()
    assert world.left() == ()


async def test_a_store_that_refuses_is_told_with_the_remedy_and_its_keys_are_read_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(key: str) -> None:
        raise StoreDenied(f"DELETE s3://lead/{key}: the store answered 403 AccessDenied")

    with monkeypatch.context() as patched:
        patched.setattr(world.store, "delete", refuse)
        await world.step()
        await world.step()
    status = world.plans[-1].status
    assert (status["phase"], status["reason"]) == ("Deleting", "RemovalFails")
    message = status["conditions"][0]["message"]
    assert "AccessDenied" in message and "spec.retain" in message and CACHE_UID not in message
    assert world.denied == ["default"] * 2 and world.finalizers == []
    await world.to_the_end()
    assert (world.left(), world.finalizers) == ((), [False])


@pytest.mark.parametrize("lost", ["refused", "never listed"])
async def test_nothing_goes_while_a_namespace_whose_runs_may_use_it_is_not_seen(world: World, lost: str) -> None:
    informer = world.informers.of(TRAINING_RUN, "team-b")
    if lost == "refused":
        informer.refused = "403 Forbidden: trainingruns.lead.dev is forbidden"
    else:
        informer.synced.clear()
    before = world.left()
    assert await world.step() is not None
    status = world.plans[-1].status
    assert (status["phase"], status["reason"]) == ("Deleting", "NamespaceUnseen")
    assert "namespace team-b is not seen" in status["conditions"][0]["message"]
    assert (world.left(), world.finalizers) == (before, [])
    informer.refused = ""
    informer.synced.set()
    await world.to_the_end()
    assert (world.left(), world.finalizers) == ((), [False])


async def test_the_bucket_is_asked_once_who_uses_the_data(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    list_store = world.store.list
    monkeypatch.setattr(world.store, "list", lambda prefix: asked.append(prefix) or list_store(prefix))
    run = _stored({**a_run_body(), "status": {"datasets": [{"name": "towns", "digest": OLD}]}})
    world.informers.of(TRAINING_RUN, "team-a").note_own_write(run)
    assert [await world.step() for _ in range(5)] == [SETTINGS.resync_s] * 5
    assert asked == [KEYS.control.prefix, KEYS.prefix]


async def test_an_outage_is_reported_without_advice_on_keys_until_the_store_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, asked = World(tmp_path, pause_s=30.0), list[str]()

    def fail(prefix: str) -> None:
        asked.append(prefix)
        raise StoreUnavailable("store s3://lead: list: no answer in 10 s")

    run = _stored({**a_run_body(), "status": {"datasets": [{"name": "towns", "digest": OLD}]}})
    with monkeypatch.context() as patched:
        patched.setattr(world.store, "list", fail)
        for _ in range(3):
            await world.step()
    status = world.plans[-1].status
    assert (status["reason"], len(asked)) == ("RemovalFails", 1)
    message = status["conditions"][0]["message"]
    assert "no answer in 10 s" in message and "key" not in message
    world.now_s += 30.0  # it has rested
    world.informers.of(TRAINING_RUN, "team-a").note_own_write(run)
    await world.step()
    world.informers.of(TRAINING_RUN, "team-a").forget("team-a", run["metadata"]["name"])
    await world.step()
    assert world.plans[-1].status["reason"] == "RemovingData"


async def test_the_data_of_a_profile_that_is_gone_are_not_left_in_silence(world: World) -> None:
    profiles, world.end.settings = world.end.settings, replace(SETTINGS, storage_profiles={})
    before = world.left()
    assert await world.step() == SETTINGS.resync_s
    status = world.plans[-1].status
    assert (status["phase"], status["reason"]) == ("Deleting", "UnknownStorageProfile")
    message = status["conditions"][0]["message"]
    assert (
        "spec.storageProfile is 'default', which is not defined" in message and "spec.retain set to Retain" in message
    )
    assert (world.left(), world.finalizers) == (before, [])
    world.end.settings = profiles
    await world.to_the_end()
    assert (world.left(), world.finalizers) == ((), [False])


async def test_a_cache_of_a_profile_that_never_was_goes_at_once(world: World) -> None:
    world.end.settings = replace(SETTINGS, storage_profiles={})
    pending = {"observedGeneration": 1, "phase": "Pending", "reason": "UnknownStorageProfile"}
    world.body["status"] = pending | {"build": {"generation": 1, "workers": [{"index": 0, "attempt": 0}]}}
    assert await world.step() is None
    assert (world.plans, world.finalizers) == ([], [False])


async def test_a_namespace_that_is_being_deleted_is_not_held_up_and_the_data_go_afterwards(world: World) -> None:
    world.namespace_goes = True
    assert await world.step() is None
    assert world.finalizers == [False] and world.plans == []
    await asyncio.gather(*world.end.leaving)
    assert world.left() == ()


async def test_nor_by_a_store_that_does_not_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(prefix: str) -> None:
        raise StoreUnavailable("no answer")

    world.namespace_goes = True
    before = world.left()
    with monkeypatch.context() as patched:
        patched.setattr(world.store, "list", fail)
        assert await world.step() is None
        await asyncio.gather(*world.end.leaving)
    assert (world.left(), world.finalizers) == (before, [False])


async def test_data_that_another_cache_of_the_namespace_retains_stay(world: World) -> None:
    other = _stored({**a_cache_body(), "status": {"digest": NEW}})
    other["metadata"] |= {"name": "other", "uid": "another"}
    world.informers.of(DATASET_CACHE, "team-a").note_own_write(other)
    world.namespace_goes = True
    assert await world.step() is None
    await asyncio.gather(*world.end.leaving)
    assert world.left() == (CacheKeys("team-a", NEW).manifest,)
