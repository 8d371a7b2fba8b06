"""A model test of `decide_training_run`: pods, nodes, store, user and operator fail or act in any order."""

import copy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from lead_operator.decisions.observed import (
    ObservedCheckpoint,
    ObservedClaim,
    ObservedInstance,
    ObservedPod,
    ObservedRun,
)
from lead_operator.decisions.plan import Plan, RunRecord
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_operator.decisions.training_run.pod_group import RETURNS_S
from lead_operator.decisions.training_run.reported_counters import find_contradiction
from lead_operator.objects.service_and_claims import claim_name
from lead_operator.resources.crd_defaults import fill_defaults
from lead_operator.resources.training_run import parse_training_run
from lead_protocol.check_record import CheckRecord
from lead_protocol.job import CheckJob, TrainJob, parse_job
from lead_protocol.object_keys import ControlKeys
from lead_protocol.progress_record import ProgressRecord
from lead_protocol.run_records import RestartRecord, RunEnd, parse_restart_record, parse_run_end, parse_started
from lead_testing.decision_worlds.pods_world import PodsMachine, PodsWorld, difference
from lead_testing.makers import SETTINGS, a_ready_cache, a_run_body

STEPS_PER_EPOCH = 10
REFUSED_NODES = 3
STAGES = [
    {"name": "pretrain", "epochs": 2},
    {"name": "posttrain", "epochs": 2, "initFrom": {"stage": "pretrain"}, "seeds": [0, 1]},
]
EXIT_CODES = [1, 75, 79, 80, 81, 82, 137]
NODES = ["node-0", "node-1", "node-2"]
WAITS: dict[str, Any] = {"waiting_reason": "Unschedulable", "waiting_message": "3 had volume node affinity conflict"}
PLACED: dict[str, Any] = {"waiting_reason": "", "waiting_message": ""}


def key_of(one: ObservedPod | TrainJob) -> tuple[str, int, int]:
    return one.stage, one.seed, one.attempt


@dataclass
class Instance:
    """What the bucket holds of one stage instance, and how far its live group is."""

    epochs: int
    step: int = 0
    committed: int = 0  # step of the newest checkpoint
    fences: set[int] = field(default_factory=set)
    records: dict[int, ProgressRecord] = field(default_factory=dict)
    advanced_at: dict[int, datetime] = field(default_factory=dict)  # attempt -> when its newest step was made


class RunWorld(PodsWorld):
    """The world of one run: two stages, one of two seeds, two pods a group, three nodes with a disk each."""

    def __init__(self, **spec: Any) -> None:
        super().__init__()
        self.spec: dict[str, Any] = {
            "stages": STAGES, "nodes": 2, "failurePolicy": {"maxRestarts": 6, "hangTimeoutSeconds": 120},
            "sessionCache": {"medium": "PersistentVolume"}, **spec,
        }  # fmt: skip
        self.run = parse_training_run(a_run_body(**self.spec))
        self.service = False
        self.claims: dict[str, ObservedClaim] = {}
        self.volumes: dict[str, str] = {}  # UID of a claim -> the node on whose disk it lies
        self.instances = {(i.stage.name, i.seed): Instance(i.stage.epochs) for i in self.run.instances}
        self.keys = ControlKeys("team-a", self.run.identity.uid)
        self.records: dict[str, bytes] = {}  # what the operator has written to the bucket
        self.checks: dict[str, ObservedPod] = {}  # pods that judge the configuration
        self.forged = False  # somebody wrote an end into the status
        self.miscounted = False  # or other restarts and ends than there were

    def suspend(self, value: bool) -> None:
        self.run = replace(self.run, suspend=value)

    def resize(self, nodes: int) -> None:
        self.run = replace(self.run, nodes=nodes)

    def observe(self) -> ObservedRun:
        observed = ObservedRun(
            now=self.now,
            pods=self.observed_pods(),
            checks=tuple(self.checks.values()),
            service_exists=self.service,
            claims=tuple(self.claims.values()),
            nodes_away=dict(self.lost_nodes),
            caches=(a_ready_cache(),),
            instances=tuple(self._instance(*key) for key in self.instances) if self.store_up else (),
            store_error="" if self.store_up else "StoreUnavailable: no answer",
            previous=copy.deepcopy(self.status),
            ended=self.recorded_end() if self.store_up else None,
            end_disproved=self.forged and self.store_up,
            restart_record=self.newest_restart_record() if self.store_up else None,
        )
        return replace(observed, counters_disproved=find_contradiction(self.run, observed))

    def recorded_end(self) -> RunEnd | None:
        data = self.records.get(self.keys.ended)
        return parse_run_end(data) if data is not None else None

    def newest_restart_record(self) -> RestartRecord | None:
        newest = max((key for key in self.records if key.startswith(self.keys.restarts_prefix)), default=None)
        return parse_restart_record(self.records[newest]) if newest is not None else None

    def _instance(self, stage: str, seed: int) -> ObservedInstance:
        held = self.instances[(stage, seed)]
        checkpoint = None
        if held.committed:
            prefix = f"runs/team-a/{self.run.identity.uid}/{stage}-s{seed}/checkpoints/{held.committed:012d}/"
            checkpoint = ObservedCheckpoint(
                f"m{held.committed}", prefix, held.committed, held.committed // STEPS_PER_EPOCH, 1, 10, ""
            )
        newest = max(held.records, default=0)
        recorded = self.recorded_attempt(stage, seed)
        started = self.records.get(self.keys.attempt(stage, seed, recorded))
        return ObservedInstance(
            stage, seed, held.records.get(newest), checkpoint,
            highest_attempt=max([recorded, *(number for number in held.fences if number <= recorded + 1)]),
            recorded_attempt=recorded, fence=max(held.fences, default=0),
            started=parse_started(started) if started is not None else None,
            done=self.keys.done(stage, seed) in self.records,
        )  # fmt: skip

    def recorded_attempt(self, stage: str, seed: int) -> int:
        prefix = self.keys.attempts_prefix(stage, seed)
        return max((int(key[len(prefix) : -5]) for key in self.records if key.startswith(prefix)), default=0)

    def apply(self, plan: Plan, stop_after: int | None = None) -> None:
        """Carries out a plan, and its tries, which an operator that dies does not reach."""
        super().apply(plan, stop_after)
        for body in plan.tries if stop_after is None else ():
            name, job = body["metadata"]["name"], parse_job(body["metadata"]["annotations"]["lead.dev/job"])
            assert isinstance(job, CheckJob)
            self.checks.setdefault(
                name,
                ObservedPod(
                    name=name, uid=self._new_uid(), role="check", stage="", seed=0, attempt=0, rank=0,
                    phase="Pending", created_at=self.now, nodes=job.nodes,
                ),
            )  # fmt: skip

    def answer_checks(self) -> None:
        """Lets every check pod end: the recipe's batch cannot be divided by `REFUSED_NODES`."""
        for name, pod in self.checks.items():
            if not pod.terminal:
                record = CheckRecord(accepted=pod.nodes != REFUSED_NODES, message="batch_size: found 4")
                phase, code = ("Succeeded", 0) if record.accepted else ("Failed", 64)
                said = record.model_dump_json()
                self.checks[name] = replace(pod, phase=phase, exit_code=code, started_at=self.now, message=said)

    def delete(self, name: str, uid: str, grace_s: int | None) -> None:
        """Deletes a pod, one that checks at once."""
        if name in self.checks:
            del self.checks[name]
        super().delete(name, uid, grace_s)

    def _write_record(self, record: RunRecord) -> None:
        self.records.setdefault(record.key, record.data)

    def _create(self, body: dict[str, Any]) -> None:
        if body["kind"] == "Service":
            self.service = True
            return
        name = body["metadata"]["name"]
        if body["kind"] == "PersistentVolumeClaim":
            self.claims.setdefault(name, ObservedClaim(name, self._new_uid(), self.now))
            return
        if name in self.pods:
            return
        job = parse_job(body["metadata"]["annotations"]["lead.dev/job"])
        assert isinstance(job, TrainJob)
        others = [p for p in self.pods.values() if self.may_write(p)]
        same = [p for p in others if (p.stage, p.seed) == (job.stage, job.seed)]
        groups = {(p.stage, p.seed) for p in others} | {(job.stage, job.seed)}
        assert all(p.attempt == job.attempt for p in same) and len(groups) <= self.run.parallelism, (
            f"{name} was made while {[p.name for p in others]} may still write"
        )
        rank, nodes = (int(body["metadata"]["labels"][f"lead.dev/{key}"]) for key in ("rank", "nodes"))
        group = {p.nodes for p in self.pods.values() if key_of(p) == key_of(job)}
        assert nodes == job.nodes > rank and nodes != REFUSED_NODES, f"{name} is of a group that the recipe refuses"
        assert group <= {nodes}, f"{name} is one of {nodes} pods, the others of its attempt of {group}"
        claim = self.claims[claim_name(self.run, rank)]
        assert not claim.deleting, f"{name} was made with a claim that is going"
        self._add_pod(name, rank, "", role="train", stage=job.stage, seed=job.seed, attempt=job.attempt,
                      nodes=nodes)  # fmt: skip
        self.place(name)

    def _delete_claim(self, name: str, uid: str) -> None:
        if self.claims[name].uid == uid:
            since = self.lost_nodes[self.volumes[uid]]
            lost_s = max(self.run.failure_policy.node_loss_s, RETURNS_S)
            assert self.now - since >= timedelta(seconds=lost_s), "a claim was given up before its node"
            self.terminate_claim(name)

    def terminate_claim(self, name: str) -> None:
        """Deletes a claim as the API server does: it goes when no pod that was given a node mounts it."""
        self.claims[name] = replace(self.claims[name], deleting=True)
        self._drop_free_claims()

    def finish_deletions(self) -> None:
        """Lets the nodes stop what is to go, and free claims with it."""
        super().finish_deletions()
        self._drop_free_claims()

    def restart_nodes_that_hold_claims(self) -> None:
        """Does what the run asks of people where a pod that cannot be stopped mounts a claim that is being deleted."""
        going = {name for name, claim in self.claims.items() if claim.deleting}
        self.stuck -= {pod.uid for pod in self.pods.values() if claim_name(self.run, pod.rank) in going}

    def _drop_free_claims(self) -> None:
        mounted = {claim_name(self.run, pod.rank) for pod in self.pods.values() if pod.node}
        self.claims = {name: c for name, c in self.claims.items() if not c.deleting or name in mounted}

    # what schedulers, kubelets and trainers do

    def place(self, name: str) -> None:
        """Finds a node for a pod: that of its volume, where it has one."""
        pod = self.pods[name]
        claim = self.claims.get(claim_name(self.run, pod.rank))
        if pod.node or claim is None or claim.deleting:
            return
        free = [node for node in (f"node-{pod.rank}", *NODES) if node not in self.lost_nodes]
        node = self.volumes.get(claim.uid) or next(iter(free), "")
        if node in free:
            self.volumes[claim.uid] = node
            self.pods[name] = replace(pod, node=node, **PLACED)
        elif node:
            self.pods[name] = replace(pod, **WAITS)

    def start(self, name: str) -> None:
        self.place(name)
        pod = self.pods[name]
        if not pod.node:
            return
        self.pods[name] = replace(pod, phase="Running", ready=True, started_at=self.now)
        held = self.instances[(pod.stage, pod.seed)]
        if pod.rank == 0 and self.store_up:
            if pod.attempt in held.fences:
                self.end(name, 79)
                return
            held.fences.add(pod.attempt)
            held.step = held.committed  # what was trained after it is trained again
            held.records[pod.attempt] = ProgressRecord(
                attempt=pod.attempt, seq=0, phase="Starting", epoch=0, epochs=held.epochs, step=0, steps=0
            )

    def train(self, steps: int) -> None:
        for pod in [p for p in self.pods.values() if p.rank == 0 and p.phase == "Running" and not p.deleting]:
            group = [
                p for p in self.pods.values() if (p.stage, p.seed, p.attempt) == (pod.stage, pod.seed, pod.attempt)
            ]
            if len(group) < pod.nodes or any(p.phase != "Running" for p in group) or not self.store_up:
                continue
            held = self.instances[(pod.stage, pod.seed)]
            total = held.epochs * STEPS_PER_EPOCH
            if held.step == total:
                for member in group:
                    self.end(member.name, 0)
                continue
            began = held.step
            held.step = min(total, held.step + steps)
            held.advanced_at[pod.attempt] = self.now
            held.committed = max(held.committed, held.step // STEPS_PER_EPOCH * STEPS_PER_EPOCH)
            before = held.records.get(pod.attempt)
            resumed = before.resumed_from_step if before and before.phase == "Training" else began
            held.records[pod.attempt] = ProgressRecord(
                attempt=pod.attempt, seq=before.seq + 1 if before else 0, phase="Training",
                epoch=held.step // STEPS_PER_EPOCH, epochs=held.epochs, step=held.step, steps=total, loss=0.5,
                samples_per_s=100.0, eta_s=60.0, resumed_from_step=resumed,
            )  # fmt: skip


class RunMachine(PodsMachine):
    world: RunWorld
    spec: ClassVar[dict[str, Any]] = {}

    @initialize()
    def begin(self) -> None:
        self.world = RunWorld(**self.spec)
        self.epochs: dict[tuple[str, int], tuple[int, int]] = {}  # instance -> attempt and epoch last told
        self.ended = ""

    def live(self) -> list[str]:
        return sorted(name for name, pod in self.world.pods.items() if not pod.terminal)

    @rule()
    def reconcile(self) -> None:
        self.observe(None)

    @rule(actions=st.integers(0, 4))
    def reconcile_and_die(self, actions: int) -> None:
        self.observe(actions)

    def observe(self, stop_after: int | None) -> None:
        observed = self.world.observe()
        assert not observed.counters_disproved or self.world.miscounted, observed.counters_disproved
        plan = decide_training_run(self.world.run, observed, SETTINGS)
        later = replace(observed, previous=plan.status, end_disproved=False, counters_disproved="")
        again = decide_training_run(self.world.run, later, SETTINGS)
        if not plan.claim_attempt and not plan.deletes and not plan.claim_deletes:
            assert again.status == plan.status, difference(again.status, plan.status)
            assert not again.events and not again.claim_attempt
        failure = plan.status.get("lastFailure", {})
        if self.world.store_up and failure != observed.previous.get("lastFailure", {}):
            held = self.world.instances[(failure["stage"], failure["seed"])]
            assert held.committed < held.epochs * STEPS_PER_EPOCH, "an attempt failed after its final checkpoint"
            self.check_hang(held, failure)
        self.check_records(observed, plan)
        self.world.apply(plan, stop_after)
        if plan.status["phase"] == "Failed" and (stop_after is None or stop_after > len(plan.records)):
            assert self.world.status["phase"] == "Failed", "pods went before the verdict was written"
        if self.world.store_up and self.world.status == plan.status:
            self.world.miscounted = False
        if self.world.status == plan.status:  # what an operator that died has not written, nobody was told
            self.check(plan.status)

    def check_hang(self, held: Instance, failure: dict[str, Any]) -> None:
        advanced_at = held.advanced_at.get(failure["attempt"])
        if failure["reason"] == "Hung" and advanced_at is not None:
            stood_s = (self.world.now - advanced_at) / timedelta(seconds=1)
            assert stood_s >= self.world.run.failure_policy.hang_timeout_s, "a group that trains was called hung"

    def check_records(self, observed: ObservedRun, plan: Plan) -> None:
        if self.ended:
            assert not plan.creates, f"something is started after {self.ended}"
            assert not self.world.store_up or plan.status["phase"] == self.ended, "a verdict was taken back"
        held = self.world.newest_restart_record()
        if "restarts" not in observed.previous and held and self.world.store_up:
            spent = plan.status["restarts"]
            assert spent["program"] >= held.program, "an erased status has refilled a budget"
            assert spent["infrastructure"] >= held.infrastructure, "an erased status has refilled a budget"

    def check(self, status: dict[str, Any]) -> None:
        fill_defaults({**a_run_body(**self.world.spec), "status": status})
        self.check_progress(status)
        policy, restarts = self.world.run.failure_policy, status.get("restarts", {"program": 0, "infrastructure": 0})
        assert restarts["program"] <= policy.max_restarts
        assert restarts["infrastructure"] <= policy.max_infra_restarts

    def check_progress(self, status: dict[str, Any]) -> None:
        assert "ImplausibleReport" not in str(status["conditions"]), "a true report was refused"
        for entry in status["stages"]:
            instance, progress = (entry["name"], entry["seed"]), entry["progress"]
            attempt, epoch = progress.get("attempt", entry["attempt"]), progress["epoch"]
            last_attempt, last_epoch = self.epochs.get(instance, (0, 0))
            if epoch < last_epoch:
                assert attempt > last_attempt, "an epoch was taken back within one attempt"
                ended = entry["restartState"]["endedAttempt"]
                assert ended >= last_attempt, "an epoch was taken back, no end is recorded"
            assert epoch >= entry.get("checkpoint", {}).get("epoch", 0), "progress is behind the newest checkpoint"
            self.epochs[instance] = (attempt, epoch)

    @rule(data=st.data())
    def a_pod_starts(self, data: st.DataObject) -> None:
        waiting = [n for n in self.live() if self.world.pods[n].phase == "Pending"]
        if waiting:
            self.world.start(data.draw(st.sampled_from(waiting)))

    @rule()
    def all_pods_start(self) -> None:
        for name in self.live():
            if self.world.pods[name].phase == "Pending":
                self.world.start(name)

    @rule(steps=st.integers(1, 15))
    def training_goes_on(self, steps: int) -> None:
        self.world.train(steps)

    @precondition(lambda self: self.live())
    @rule(data=st.data(), code=st.sampled_from(EXIT_CODES))
    def a_rank_fails(self, data: st.DataObject, code: int) -> None:
        name = data.draw(st.sampled_from(self.live()))
        if self.world.pods[name].phase == "Running":
            self.world.end(name, code)

    @rule()
    def a_rank_is_done_before_the_others(self) -> None:
        for name in self.live():
            pod = self.world.pods[name]
            held = self.world.instances[(pod.stage, pod.seed)]
            if pod.rank == 1 and pod.phase == "Running" and held.step == held.epochs * STEPS_PER_EPOCH:
                self.world.end(name, 0)

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def somebody_deletes_a_pod(self, data: st.DataObject) -> None:
        pod = self.world.pods[data.draw(st.sampled_from(self.live()))]
        self.world.delete(pod.name, pod.uid, None)

    @rule()
    def deleted_pods_are_gone(self) -> None:
        self.world.finish_deletions()

    @rule(node=st.sampled_from(NODES))
    def a_node_goes_or_comes_back(self, node: str) -> None:
        self.world.lose_or_return(node)

    @rule(rank=st.integers(0, 1))
    def somebody_deletes_a_claim(self, rank: int) -> None:
        name = claim_name(self.world.run, rank)
        if name in self.world.claims:
            self.world.terminate_claim(name)

    @rule()
    def the_store_goes_or_comes_back(self) -> None:
        self.world.store_up = not self.world.store_up

    @rule()
    def suspend_or_resume(self) -> None:
        self.world.suspend(not self.world.run.suspend)

    @rule(nodes=st.integers(1, REFUSED_NODES))
    def somebody_changes_the_number_of_nodes(self, nodes: int) -> None:
        """Once every attempt that the status holds is recorded: until then nobody knows how many pods it has."""
        held = self.world.status.get("stages", [])
        recorded = [e["attempt"] <= self.world.recorded_attempt(e["name"], e["seed"]) for e in held]
        if any(e["attempt"] for e in held) and all(recorded):
            self.world.resize(nodes)

    @rule()
    def the_checks_answer(self) -> None:
        self.world.answer_checks()

    @rule()
    def the_status_is_erased(self) -> None:
        if self.ended and self.world.recorded_end() is None:
            assert "StorageUnavailable" in str(self.world.status), "a verdict was told and not recorded"
            self.ended = ""  # the store was away when the run ended, and nobody has looked since it is back
        self.world.status = {}
        self.epochs.clear()

    @rule(end=st.sampled_from(["Succeeded", "Failed"]))
    def somebody_writes_an_end_into_the_status(self, end: str) -> None:
        if self.ended or "stages" not in self.world.status or self.world.recorded_end() is not None:
            return
        self.world.forged = True
        said = {"type": end, "status": "True", "reason": "Forged", "message": "", "observedGeneration": 1,
                "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
        stages = [entry | {"phase": end} for entry in self.world.status["stages"]]
        self.world.status |= {"phase": end, "stages": stages}
        self.world.status["conditions"] = [*self.world.status["conditions"], said]

    @rule(
        raised=st.sampled_from([-2, -1, 1, 100]),
        field=st.sampled_from(["restarts", "attempt", "endedAttempt", "restartState"]),
    )
    def somebody_writes_other_counters_into_the_status(self, raised: int, field: str) -> None:
        """Other counters than those that the operator reports, before it looks with a store that answers."""
        status = self.world.status
        answers = "'StorageAvailable', 'status': 'True'" in str(status.get("conditions"))
        over = status.get("phase") in ("Succeeded", "Failed")  # its counters steer nothing any more
        if not self.world.store_up or "restarts" not in status or not answers or over:
            return
        self.world.miscounted = True
        if field == "restarts":
            counts = {key: max(0, count + raised) for key, count in status["restarts"].items()}
            self.world.status = status | {"restarts": counts}
        stages = [copy.deepcopy(entry) for entry in status["stages"]]
        for entry in stages:
            held = entry.get("restartState") or {}
            if field == "attempt" and "attempt" in entry:
                entry["attempt"] = max(0, entry["attempt"] + raised)
            elif field == "endedAttempt" and held:
                held["endedAttempt"] = max(0, held["endedAttempt"] + raised)
            elif field == "restartState" and held:
                held |= {"errorsAtStep": raised, "failedAttempt": max(0, raised), "failedAt": "2099-01-01T00:00:00Z"}
        if field != "restarts":
            self.world.status = status | {"stages": stages}
        self.observe(None)
        self.world.miscounted = False

    @rule(seconds=st.integers(1, 90))
    def time_goes_on(self, seconds: int) -> None:
        self.world.now += timedelta(seconds=seconds)

    @invariant()
    def an_end_is_an_end(self) -> None:
        status = self.world.status if hasattr(self, "world") else {}
        if hasattr(self, "world") and self.world.forged:
            self.world.forged = "Forged" in str(status.get("conditions"))
            status = {} if self.world.forged else status
        phase = status.get("phase", "")
        if getattr(self, "ended", ""):
            assert phase == self.ended or "restarts" not in status  # erased, and the bucket not read yet
        elif phase in ("Succeeded", "Failed"):
            self.ended = phase

    def teardown(self) -> None:
        """When the world is kind again, every run comes to an end and then to rest; a node that is lost may stay so."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.store_up = True
        world.suspend(False)
        self.an_end_is_an_end()
        self.observe(None)
        for node in NODES[2:] + self.nodes_nobody_knows_of():
            world.lost_nodes.pop(node, None)
        for _ in range(120):
            self.observe(None)
            world.answer_checks()
            world.restart_nodes_that_hold_claims()
            world.finish_deletions()
            self.all_pods_start()
            world.train(10)
            world.now += timedelta(seconds=30)
            if world.status.get("phase") in ("Succeeded", "Failed"):
                break
        assert world.status["phase"] in ("Succeeded", "Failed"), world.status
        world.forged = False
        self.observe(None)  # at what its last pods have left
        world.finish_deletions()
        plan = decide_training_run(world.run, world.observe(), SETTINGS)
        assert plan.status == world.status
        assert not plan.creates and not plan.deletes and not plan.claim_deletes and not plan.events
        assert not any(pod.kept_by_sidecar and pod.node not in world.lost_nodes for pod in world.pods.values())

    def nodes_nobody_knows_of(self) -> list[str]:
        """Where volumes lie that the operator has not seen in use, or has forgotten with its status."""
        known = self.world.status.get("cacheNodes") or [""] * self.world.run.nodes
        claims = [self.world.claims.get(claim_name(self.world.run, rank)) for rank in range(len(known))]
        nodes = [self.world.volumes.get(claim.uid, "") if claim else "" for claim in claims]
        return [node for node, told in zip(nodes, known, strict=True) if node != told]


class SideBySideMachine(RunMachine):
    """The same world with two groups at once."""

    spec: ClassVar[dict[str, Any]] = {"parallelism": 2}


class ShortLivedMachine(RunMachine):
    """A run that soon gives up and keeps no pod: nothing but the bucket knows its verdict."""

    spec: ClassVar[dict[str, Any]] = {
        "failurePolicy": {"maxRestarts": 1, "maxInfraRestarts": 1},
        "cleanPodPolicy": "All",
    }

    @initialize()
    def begin(self) -> None:
        super().begin()
        self.observe(None)
        self.all_pods_start()

    @precondition(lambda self: self.live())
    @rule(code=st.sampled_from([1, 64, 80]))
    def every_rank_fails(self, code: int) -> None:
        self.all_pods_start()
        for name in self.live():
            self.world.end(name, code)
