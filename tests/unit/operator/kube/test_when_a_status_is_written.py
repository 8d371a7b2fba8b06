"""Mere progress is written every ten seconds at most, and not lost; what a person waits for is written at once."""

from dataclasses import replace
from typing import Any, cast

import pytest

from lead_operator.controllers.apply import Applier, CreateRefused
from lead_operator.decisions.observed import ObservedCheckpoint, ObservedInstance, ObservedRun
from lead_operator.decisions.plan import EventNote, Plan
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_operator.kube.api_errors import Refused
from lead_operator.kube.client import KubeClient
from lead_operator.kube.event_recorder import EventRecorder
from lead_operator.kube.informers import Informers
from lead_operator.kube.kinds import TRAINING_RUN, KubernetesObject
from lead_operator.resources.body import Identity
from lead_operator.resources.stored import Stored, read_stored
from lead_protocol.progress_record import ProgressRecord
from lead_testing.makers import NOW, RUN_UID, SETTINGS, a_failed_pod, a_pod, a_ready_cache, a_run_body, a_training_run

RECORD = ProgressRecord(attempt=1, seq=1, phase="Training", epoch=1, epochs=4, step=12, steps=48, loss=0.5)
BUCKET = ObservedInstance("train", 0, highest_attempt=1, progress=RECORD)
FIRST = ObservedCheckpoint(
    "key", f"runs/team-a/{RUN_UID}/train-s0/checkpoints/x/", 12, 1, 1, 10, "2026-01-01T12:00:00Z"
)
PODS = (a_pod(0), a_pod(1))


class Server:
    """Takes each status of one run, and no pod; its clock goes on when it is told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.written: list[dict[str, Any]] = []
        self.said: list[EventNote] = []
        self.run = a_run_body()
        self.run["metadata"]["resourceVersion"] = "1"
        client = cast(KubeClient, self)
        informers = Informers(client, ("team-a",), SETTINGS, lambda key: None, lambda key: None)
        self.applier = Applier(client, cast(EventRecorder, self), informers, now=lambda: self.now_s)

    async def apply_status(self, kind: object, stored: Stored, status: dict[str, Any]) -> KubernetesObject:
        """Stores the status."""
        self.written.append(status)
        version = str(1 + len(self.written))
        self.run = {**self.run, "metadata": {**self.run["metadata"], "resourceVersion": version}, "status": status}
        return self.run

    async def create(self, body: KubernetesObject) -> KubernetesObject:
        """Refuses, for want of quota."""
        raise Refused(403, "Forbidden", "exceeded quota")

    def record(self, identity: Identity, note: EventNote) -> None:
        """Keeps an event."""
        self.said.append(note)

    def plan(self, bucket: ObservedInstance, pods: tuple[Any, ...] = PODS) -> Plan:
        """Decides as a pass does."""
        seen = ObservedRun(
            now=NOW, previous=self.run.get("status", {}), pods=pods, caches=(a_ready_cache(),), service_exists=True,
            instances=(bucket,),
        )  # fmt: skip
        return decide_training_run(a_training_run(), seen, SETTINGS)

    async def observe(self, bucket: ObservedInstance, pods: tuple[Any, ...] = PODS) -> float | None:
        """Makes a pass without its creates and deletes; returns when it wants to look again."""
        plan = replace(self.plan(bucket, pods), creates=(), deletes=(), claim_attempt=False)
        return await self.applier.apply(TRAINING_RUN, read_stored(self.run, TRAINING_RUN.kind), plan)


@pytest.fixture
async def server() -> Server:
    """A server on which the run trains at step 12."""
    server = Server()
    await server.observe(ObservedInstance("train", 0), ())
    server.now_s += 10
    await server.observe(BUCKET)
    assert server.written[-1]["phase"] == "Running"
    return server


def at(step: int, **fields: Any) -> ObservedInstance:
    return replace(BUCKET, progress=RECORD.model_copy(update={"step": step, "seq": step, "loss": 1 / step, **fields}))


async def test_mere_progress_waits_for_ten_seconds_and_then_the_newest_is_written(server: Server) -> None:
    before = len(server.written)
    for second in range(1, 10):
        server.now_s += 1
        again_s = await server.observe(at(12 + second))
        assert again_s is not None and again_s <= 10 - second
    assert len(server.written) == before
    server.now_s += 1
    await server.observe(at(22))
    assert [status["stages"][0]["progress"]["step"] for status in server.written[before:]] == [22]
    server.now_s += 9
    await server.observe(at(23))
    assert len(server.written) == before + 1


@pytest.mark.parametrize(
    ("bucket", "pods"),
    [
        (at(13, epoch=2), PODS),
        (replace(at(13), checkpoint=FIRST), PODS),
        (at(13), (a_pod(0), a_failed_pod(1))),
        (replace(at(13), quarantined=("key",)), PODS),
    ],
    ids=["an epoch", "a checkpoint", "a failure", "a condition"],
)
async def test_what_a_person_waits_for_is_written_at_once(
    server: Server, bucket: ObservedInstance, pods: tuple[Any, ...]
) -> None:
    before = len(server.written)
    server.now_s += 1
    await server.observe(bucket, pods)
    assert len(server.written) == before + 1


async def test_a_status_that_says_the_same_is_never_written(server: Server) -> None:
    before = len(server.written)
    server.now_s += 3600
    await server.observe(BUCKET)
    assert len(server.written) == before


async def test_of_a_group_that_is_refused_the_first_pod_is_told(server: Server) -> None:
    plan = server.plan(BUCKET, ())
    pods = tuple({"kind": "Pod", "metadata": {"name": f"pod-{rank}", "namespace": "team-a"}} for rank in (0, 1))
    with pytest.raises(CreateRefused, match=r"^Pod pod-0: exceeded quota$"):
        stored = read_stored(server.run, TRAINING_RUN.kind)
        await server.applier.apply(TRAINING_RUN, stored, replace(plan, creates=pods, claim_attempt=False))
    told = [note.message for note in server.said if note.reason == "FailedCreate"]
    assert told == ["Pod pod-0: exceeded quota"]
