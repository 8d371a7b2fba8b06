"""Plays scheduler, kubelet and trainer for pods of an API server that has none: binds, starts, ends and removes them.

What the pods would write to the bucket (fencing objects, progress, checkpoints, caches) it writes to the real store,
with the models of `lead_protocol`. A test says beforehand which rank of which attempt ends how; everything else goes
well at once.
"""

import base64
import hashlib
import json
import ssl
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import urllib3
import yaml

from lead_protocol.cache_digest import digest_of
from lead_protocol.check_record import CheckRecord
from lead_protocol.closed_loop_record import ClosedLoopManifest, DrivenNumbers
from lead_protocol.environment import JOB_ANNOTATION
from lead_protocol.job import AnyJob, BuildJob, CheckJob, ClosedLoopJob, TrainJob, parse_job
from lead_protocol.manifests import CacheManifest, CheckpointManifest, CollectionEntry, RouteCounts, StoredObject
from lead_protocol.object_keys import CacheKeys
from lead_protocol.progress_record import BuildRecord, CheckpointRef, ProgressRecord
from lead_protocol.source_listing import ListingHash
from lead_protocol.store.object_store import ObjectStore

STEPS_PER_EPOCH = 10
PASS_S = 0.1
SHA = "5" * 64

Pod = dict[str, Any]
Group = tuple[str, ...]


@dataclass(frozen=True)
class Exit:
    """How a pod ends."""

    code: int
    message: str = ""
    reason: str = "Error"
    disruption: str = ""  # reason of a DisruptionTarget condition: who took the pod away


@dataclass
class Script:
    """What a test wants to go otherwise than well."""

    exits: dict[tuple[str, int, int], Exit] = field(
        default_factory=dict
    )  # (stage, attempt, rank); builds without stages: "", checks: "check"
    waiting: dict[tuple[str, int, int], tuple[str, str]] = field(default_factory=dict)  # like exits: reason, message
    reports: dict[int, bytes] = field(default_factory=dict)  # attempt -> what lies in its progress object instead
    held: set[str] = field(default_factory=set)  # stages whose groups work on until they are released; builds: ""
    driving_scores: list[float] = field(default_factory=list)  # of closed loops, in turn
    hung: set[tuple[str, int]] = field(default_factory=set)  # (stage, attempt) of groups that stop after one step
    steps: dict[tuple[str, int], list[int]] = field(default_factory=dict)  # what a group reports, then it goes on
    step_s: float = 0.0  # how long each of `steps` takes
    held_at: int = 0  # epochs that held groups have completed and committed
    nodes: dict[tuple[str, int, int], str] = field(default_factory=dict)  # like exits: where a pod is bound
    dead_nodes: set[str] = field(default_factory=set)  # their kubelets move no pod and answer no deletion
    commit_before_exit: bool = True  # a group that will fail has committed its first epoch
    clock_ahead_s: float = 0.0  # of the machines that the pods are on, before the true time


class PodDriver:
    """A thread that moves every pod of one namespace along; leaving the context ends it."""

    def __init__(self, kubeconfig: Path, namespace: str, store: ObjectStore, node: str) -> None:
        self.script = Script()
        self.seen: dict[str, Pod] = {}  # every pod there ever was, by UID
        self.errors: list[Exception] = []
        self._namespace = namespace
        self._store = store
        self._node = node
        self.api = Api(kubeconfig)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"pods of {namespace}", daemon=True)
        self._seq = 0
        self._next_step_at = 0.0
        self._ends: dict[str, Exit] = {}  # by UID: of containers that have ended while their pods' phase is Running

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=30)
        self.refuse_to_be_dead(error)

    def refuse_to_be_dead(self, told: BaseException | None = None) -> None:
        """Raises what ended the thread, from the error that came of it: whoever waits for pods waits in vain."""
        if self.errors:
            raise self.errors[0] from told

    def pods(self) -> list[Pod]:
        """Returns the pods of the namespace as the API server holds them now."""
        found: list[Pod] = self.api.call("GET", self._path())["items"]
        return found

    def _run(self) -> None:
        while not self._stop.wait(PASS_S):
            try:
                pods, groups = self.pods(), defaultdict[Group, list[Pod]](list)
                for pod in pods:
                    self.seen[pod["metadata"]["uid"]] = pod
                    groups[_group(pod)].append(pod)
                for pod in pods:
                    self._move(pod, groups[_group(pod)])
            except (urllib3.exceptions.HTTPError, ApiRefused):
                continue  # the API server is away, or the pod has changed: the next pass sees
            except Exception as error:
                self.errors.append(error)
                return

    def _move(self, pod: Pod, group: list[Pod]) -> None:
        phase = pod["status"].get("phase", "Pending")
        if pod["spec"].get("nodeName") in self.script.dead_nodes:
            return
        if "deletionTimestamp" in pod["metadata"]:
            self._stop_pod(pod, phase)
        elif (cause := self._waits(pod)) is not None:
            self._keep_waiting(pod, *cause)
        elif not pod["spec"].get("nodeName"):
            self._bind(pod)
        elif phase == "Pending":
            self._write_status(pod, "Running", {"running": {"startedAt": self._now()}}, ready=True)
            self.begin_training(pod)
        elif phase == "Running" and pod["metadata"]["uid"] in self._ends:
            self._close(pod)
        elif phase == "Running":
            self._work(pod, group)

    def _bind(self, pod: Pod) -> None:
        name = pod["metadata"]["name"]
        node = self.script.nodes.get(_place(pod), self._node)
        target = {"kind": "Node", "apiVersion": "v1", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        self.api.call("POST", self._path(name, "binding"), body)

    def _waits(self, pod: Pod) -> tuple[str, str] | None:
        return self.script.waiting.get(_place(pod))

    def _keep_waiting(self, pod: Pod, reason: str, message: str) -> None:
        if pod["status"].get("containerStatuses") or pod["status"].get("conditions"):
            return  # said already
        if reason in ("Unschedulable", "SchedulingGated"):
            told = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
            body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"phase": "Pending", "conditions": [told]}}
            self.api.call("PATCH", self._path(pod["metadata"]["name"], "status"), body)
        else:
            self._write_status(pod, "Pending", {"waiting": {"reason": reason, "message": message}}, ready=False)

    def _stop_pod(self, pod: Pod, phase: str) -> None:
        job = _job(pod)
        if phase == "Running" and pod["metadata"]["uid"] not in self._ends:
            if isinstance(job, TrainJob) and not job.evaluates and _rank(pod) == 0:
                self._commit(job, epoch=self.script.held_at or 1)
            self._end(pod, Exit(75, "", "Error"))
        if phase == "Running":
            self._close(pod)
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        self.api.call("DELETE", self._path(pod["metadata"]["name"]), options)

    def begin_training(self, pod: Pod) -> None:
        """Fences the attempt and reports its first step, if the pod is rank 0 of a group that trains."""
        job = _job(pod)
        if isinstance(job, TrainJob) and _rank(pod) == 0:
            self._store.create(job.keys.attempt(job.attempt), pod["metadata"]["uid"].encode())
            if self.script.held_at:
                self._commit(job, epoch=self.script.held_at)
            self._report(job, "Starting" if self._paced(job) else "Training", epoch=self.script.held_at)
            if (job.stage, job.attempt) in self.script.hung:
                self._report(job, "Training", epoch=self.script.held_at, more_steps=1)
        elif isinstance(job, BuildJob) and job.stage in self.script.held:
            self._report_build(job)

    def _work(self, pod: Pod, group: list[Pod]) -> None:
        job, rank = _job(pod), _rank(pod)
        size = job.nodes if isinstance(job, TrainJob) else 1
        if sum(p["status"].get("phase") in ("Running", "Succeeded") for p in group) < size:
            return  # waits for its peers at the rendezvous
        if isinstance(job, TrainJob) and (steps := self._paced(job)):
            if rank == 0 and time.monotonic() >= self._next_step_at:
                self._next_step_at = time.monotonic() + self.script.step_s
                self._report_step(job, steps.pop(0))
            return
        ending = self._scripted(job, rank)
        if ending is not None:
            if isinstance(job, TrainJob) and self.script.commit_before_exit:
                self._commit(job, epoch=self.script.held_at or 1)
            self._end(pod, ending)
        elif isinstance(job, BuildJob) and job.stage in self.script.held:
            return
        elif isinstance(job, CheckJob):
            self._end(pod, Exit(0, CheckRecord(accepted=True).model_dump_json()))
        elif isinstance(job, ClosedLoopJob):
            self._drive(job, pod)
        elif isinstance(job, BuildJob):
            self._build(job)
            self._end(pod, Exit(0))
        elif not self._is_held(job) and not self._group_will_fail(job):
            self._commit(job, epoch=job.epochs)
            record = self._report(job, "Done", epoch=job.epochs)
            self._end(pod, Exit(0, record if rank == 0 else ""))

    def _paced(self, job: TrainJob) -> list[int]:
        return self.script.steps.get((job.stage, job.attempt), [])

    def _is_held(self, job: TrainJob) -> bool:
        return job.stage in self.script.held or (job.stage, job.attempt) in self.script.hung

    def _scripted(self, job: AnyJob, rank: int) -> Exit | None:
        return self.script.exits.get(_place_of(job, rank))

    def _group_will_fail(self, job: TrainJob) -> bool:
        return any((job.stage, job.attempt, rank) in self.script.exits for rank in range(job.nodes))

    def _end(self, pod: Pod, ending: Exit) -> None:
        """Ends the container. As with a kubelet, the phase follows later, with the word of who took the pod away."""
        self._ends[pod["metadata"]["uid"]] = ending
        self._write_status(pod, "Running", _terminated(ending, self._now()), ready=False)

    def _close(self, pod: Pod) -> None:
        ending = self._ends[pod["metadata"]["uid"]]
        phase = "Failed" if ending.code else "Succeeded"
        self._write_status(pod, phase, _terminated(ending, self._now()), ready=False, disruption=ending.disruption)

    def _write_status(self, pod: Pod, phase: str, state: dict[str, Any], *, ready: bool, disruption: str = "") -> None:
        container = {
            "name": pod["spec"]["containers"][0]["name"], "state": state, "ready": ready, "restartCount": 0,
            "image": "", "imageID": "",
        }  # fmt: skip
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": self._now()}
        conditions = [condition]
        if disruption:
            target = {"type": "DisruptionTarget", "status": "True", "reason": disruption, "message": "taken away"}
            conditions.append({**target, "lastTransitionTime": self._now()})
        status = {"phase": phase, "containerStatuses": [container], "conditions": conditions, "startTime": self._now()}
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        self.api.call("PATCH", self._path(pod["metadata"]["name"], "status"), body)

    def _now(self) -> str:
        told = datetime.now(UTC) + timedelta(seconds=self.script.clock_ahead_s)
        return told.strftime("%Y-%m-%dT%H:%M:%SZ")

    def _path(self, *parts: str) -> str:
        return "/".join(("/api/v1/namespaces", self._namespace, "pods", *parts))

    # --- what the trainer would write to the bucket ------------------------------------------------------------------

    def _report_step(self, job: TrainJob, step: int) -> str:
        epoch = step // STEPS_PER_EPOCH
        return self._report(job, "Training", epoch=epoch, more_steps=step - epoch * STEPS_PER_EPOCH)

    def _report(self, job: TrainJob, phase: str, *, epoch: int, more_steps: int = 0) -> str:
        self._seq += 1
        step = epoch * STEPS_PER_EPOCH + more_steps
        key = job.keys.manifest(step, 0)
        saved = CheckpointRef(step=step, epoch=epoch, manifest_key=key, saved_at=self._now(), size_bytes=4)
        resumed = (self.script.held_at or 1) * STEPS_PER_EPOCH
        committed = self._store.head(job.keys.manifest(resumed, 0)) if job.attempt > 1 else None
        record = ProgressRecord.model_validate(
            {
                "attempt": job.attempt, "seq": self._seq, "phase": phase, "epoch": epoch, "epochs": job.epochs,
                "step": step, "steps": job.epochs * STEPS_PER_EPOCH, "loss": 0.5 / (1 + epoch),
                "samples_per_s": 412.0, "eta_s": 60.0, "checkpoint": saved if epoch else None,
                "metrics": {"val/loss": 0.25, "val/mAP": 0.5} if job.evaluates and phase == "Done" else {},
                "cache_hits": 93, "cache_misses": 7, "resumed_from_step": resumed if committed else None,
            }
        )  # fmt: skip
        text = record.model_dump_json()
        self._store.put(job.keys.progress(job.attempt), self.script.reports.get(job.attempt, text.encode()))
        return text

    def _commit(self, job: TrainJob, *, epoch: int) -> None:
        step = epoch * STEPS_PER_EPOCH
        data_key = f"{job.keys.checkpoint(step, job.attempt, 'nonce')}model_{epoch:04d}.pth"
        self._store.create(data_key, b"data")
        file = StoredObject(key=data_key, size=4, sha256=hashlib.sha256(b"data").hexdigest())
        manifest = CheckpointManifest(
            run_uid=job.owner.uid, stage=job.stage, seed=job.seed, attempt=job.attempt, nonce="nonce", step=step,
            epoch=epoch, step_in_epoch=0, parent_sha256=None, recipe=job.recipe, config_sha256=SHA,
            final=job.evaluates, is_report=job.evaluates,
            dataset_digests=[d.digest for d in job.datasets], world_size=job.nodes, torch_version="0",
            parameters_sha256=SHA, files={"model.pth": file}, saved_at=self._now(),
        )  # fmt: skip
        self._store.create(job.keys.manifest(step, 0), manifest.model_dump_json().encode())

    def _drive(self, job: ClosedLoopJob, pod: Pod) -> None:
        if "closed-loop" in self.script.held:
            return
        score = self.script.driving_scores.pop(0) if self.script.driving_scores else 70.0
        numbers = DrivenNumbers(
            routes=2, recorded=2, driving_score=score, route_completion=90.0, success_whole_route=50.0,
            success_bench2drive=50.0, infractions_per_km={"red_light": 0.25}, interventions=1,
        )  # fmt: skip
        manifest = ClosedLoopManifest(
            run_uid=job.owner.uid, stage=job.stage, seed=job.seed, attempt=job.attempt, request=job.request,
            pod_uid=pod["metadata"]["uid"], epoch=job.epoch, step=job.step, checkpoint_prefix=job.checkpoint_prefix,
            numbers=numbers, files={}, saved_at=self._now(),
        )  # fmt: skip
        self._store.create(job.keys.manifest(job.attempt), manifest.model_dump_json().encode())
        self._end(pod, Exit(0))

    def _report_build(self, job: BuildJob) -> None:
        if job.stage:
            self._report_stage(job, "Building", done=3)
            return
        record = BuildRecord(
            attempt=job.attempt, seq=1, phase="Building", digest=self._digest(job), routes_total=17, routes_kept=9,
            samples=1234, shards_total=12, shards_done=3, size_bytes=3 * 2**27, share_samples=1234 // job.parallelism,
            samples_done=310, samples_per_s=5.0, eta_s=61.0,
        )  # fmt: skip
        self._store.put(job.progress_key, record.model_dump_json().encode())

    def _report_stage(self, job: BuildJob, phase: Literal["Building", "Done"], *, done: int) -> None:
        record = BuildRecord(
            attempt=job.attempt, seq=1 + (phase == "Done"), phase=phase, digest=self._digest(job), samples=40,
            share_samples=40 // job.parallelism, samples_done=done,
        )  # fmt: skip
        self._store.put(job.progress_key, record.model_dump_json().encode())

    def _build(self, job: BuildJob) -> None:
        digest = self._digest(job)
        if job.stage:
            self._store.create(job.keys.staged(digest).stage_output(job.stage, job.index), b"made")
            self._report_stage(job, "Done", done=40 // job.parallelism)
            return
        record = BuildRecord(
            attempt=job.attempt, seq=2, phase="Done", digest=digest, routes_total=3, routes_kept=2, samples=40,
            shards_total=job.parallelism, shards_done=1, size_bytes=1024,
        )  # fmt: skip
        self._store.put(job.progress_key, record.model_dump_json().encode())
        staged = job.keys.staged(digest)
        if self._store.head(staged.published.manifest) is None:
            manifest = self._manifest(job)
            for item in manifest.objects:
                self._store.create(staged.as_staged(item.key), item.key.encode())
            self._store.create(staged.manifest, manifest.model_dump_json().encode())
        self._store.create(job.keys.result(job.generation), json.dumps({"digest": digest}).encode())

    def _digest(self, job: BuildJob) -> str:
        return self._manifest(job).digest

    def _manifest(self, job: BuildJob) -> CacheManifest:
        listing = ListingHash()
        prefix = f"{job.source.prefix.strip('/')}/" if job.source.kind == "store" else ""
        for info in self._store.list(prefix) if prefix else ():
            listing.add(info.key.removeprefix(prefix), info.size, info.etag)
        named = CacheManifest(
            digest=SHA, recipe=job.recipe, builder=f"test {job.collections}", config=dict(job.config),
            source_sha256=listing.hexdigest(), routes=RouteCounts(total=3, kept=2, reasons={"crashed": 1}),
            routes_object=_object("x"), shards=[], metas=[], samples=40, size_bytes=2048,
            collections={name: CollectionEntry(object=_object("x"), samples=40, buckets=1) for name in job.collections},
        )  # fmt: skip
        keys = CacheKeys(job.owner.namespace, digest_of(named))
        collections = {
            name: CollectionEntry(object=_object(keys.bucket(name)), samples=40, buckets=1) for name in job.collections
        }
        changes = {"digest": keys.digest, "routes_object": _object(keys.routes), "collections": collections}
        return named.model_copy(update=changes)


def _object(key: str) -> StoredObject:
    return StoredObject(key=key, size=len(key), sha256=hashlib.sha256(key.encode()).hexdigest())


class ApiRefused(Exception):
    """The API server answered with an error."""


class Api:
    """Plain calls with an administrator's certificate."""

    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        self._url = cluster["server"]
        trust = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        with tempfile.NamedTemporaryFile() as pair:  # the ssl module takes a client's certificate from a file only
            pair.write(base64.b64decode(user["client-certificate-data"]) + b"\n")
            pair.write(base64.b64decode(user["client-key-data"]))
            pair.flush()
            trust.load_cert_chain(pair.name)
        self._pool = urllib3.PoolManager(ssl_context=trust, timeout=10.0, retries=False, maxsize=4)

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Makes one call; raises ApiRefused where the server answers with an error."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = None if body is None else json.dumps(body).encode()
        answer = self._pool.request(method, self._url + path, body=data, headers={"Content-Type": kind})
        if answer.status >= 400:
            raise ApiRefused(f"{method} {path}: {answer.status} {answer.data[:2000]!r}")
        found: dict[str, Any] = json.loads(answer.data)
        return found

    def send(self, method: str, path: str, data: bytes, kind: str) -> tuple[int, bytes]:
        """Sends bytes as they are; returns the HTTP status and the body of the answer."""
        answer = self._pool.request(method, self._url + path, body=data, headers={"Content-Type": kind}, timeout=60.0)
        return answer.status, answer.data

    def watch(self, path: str, version: str, *, timeout_s: int) -> Iterator[dict[str, Any]]:
        """Yields the events of a collection after `version` ("0": what there is comes first) for so long."""
        query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": str(timeout_s)}
        answer = self._pool.request("GET", self._url + path, fields=query, preload_content=False)
        try:
            if answer.status >= 400:
                raise ApiRefused(f"watch {path}: {answer.status}")
            rest = b""
            for chunk in answer.stream(65536):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from (json.loads(line) for line in lines if line)
        finally:
            answer.release_conn()


def _terminated(ending: Exit, now: str) -> dict[str, Any]:
    reason = "Completed" if ending.code == 0 else ending.reason
    state = {"exitCode": ending.code, "reason": reason, "message": ending.message}
    return {"terminated": {**state, "startedAt": now, "finishedAt": now}}


def _job(pod: Pod) -> AnyJob:
    return parse_job(pod["metadata"]["annotations"][JOB_ANNOTATION])


def _place(pod: Pod) -> tuple[str, int, int]:
    """Names a pod as scripts do: stage (empty for builds), attempt, rank."""
    return _place_of(_job(pod), _rank(pod))


def _place_of(job: AnyJob, rank: int) -> tuple[str, int, int]:
    if isinstance(job, CheckJob):
        return "check", 1, rank
    if isinstance(job, ClosedLoopJob):
        return "closed-loop", job.attempt, rank
    return job.stage, job.attempt, rank


def _rank(pod: Pod) -> int:
    labels = pod["metadata"]["labels"]
    return int(labels.get("lead.dev/rank") or labels.get("lead.dev/index") or 0)


def _group(pod: Pod) -> Group:
    """Names the pods that meet at one rendezvous, or build one cache."""
    keys = ("lead.dev/owner-uid", "lead.dev/role", "lead.dev/stage", "lead.dev/seed", "lead.dev/attempt")
    return tuple(pod["metadata"]["labels"].get(key, "") for key in keys)
