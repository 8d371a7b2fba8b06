"""A cluster as a source: what there is, by the API server; what was trained, by the buckets."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from pydantic import ValidationError

from lead_operator.kube.api_errors import NotFound
from lead_operator.kube.kinds import DATASET_CACHE, TRAINING_RUN, KubernetesObject
from lead_operator.resources.training_run_status import TrainingRunStatus
from lead_protocol.manifests import MAX_MANIFEST_BYTES, parse_cache_manifest
from lead_protocol.object_keys import CacheKeys, InstanceKeys, RunKeys, caches_prefix, runs_prefix
from lead_protocol.store.object_store import ObjectInfo, ObjectStore, StoreError
from lead_ui import assembled
from lead_ui.cache_manifest import with_manifest
from lead_ui.cluster import resources
from lead_ui.cluster.buckets import Buckets
from lead_ui.cluster.watched import ClusterReader
from lead_ui.event_files.event_cache import EventCache
from lead_ui.event_files.instance_events import History, StoredPicture
from lead_ui.model import Attempt, Cache, CacheRow, Event, Holding, Instance, Pod, Run, RunKey, RunRow
from lead_ui.records import InstanceRecords, event_files, instances_of, read_records, resolved_config
from lead_ui.source import InstanceCurves, SourceUnavailable, Visible

MOST_OBJECTS = 200_000  # of one namespace, that are counted for the page of space
COUNTED_S = 60.0  # for so long a count stays


@dataclass(frozen=True)
class _Stored:
    """What the bucket holds of one run."""

    store: ObjectStore
    records: Sequence[InstanceRecords]
    instances: Sequence[Instance]
    curves: dict[str, InstanceCurves]


@dataclass(frozen=True)
class _InStore:
    """Reads event files and pictures of one stage instance."""

    store: ObjectStore
    keys: InstanceKeys

    def fetch(self, name: str, offset: int, length: int) -> bytes:
        """Returns bytes of an event file; raises StoreError."""
        return self.store.get_range(f"{self.keys.tensorboard_prefix}{name}", offset, length)

    def picture(self, stored: StoredPicture) -> bytes:
        """Returns an encoded picture; raises SourceUnavailable."""
        try:
            return self.fetch(stored.file, stored.at.offset, stored.at.length)
        except StoreError as error:
            raise SourceUnavailable(f"the picture cannot be read: {error}") from error


@dataclass
class ClusterSource:
    """Runs and caches of the namespaces that the page serves."""

    reader: ClusterReader
    buckets: Buckets
    title: str
    is_cluster: bool = True
    _events: EventCache = field(default_factory=EventCache)
    _counted: dict[str, tuple[float, list[Holding]]] = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        """Whether runs and caches were listed once."""
        return self.reader.is_ready

    def namespaces(self) -> Sequence[str]:
        """Returns the namespaces that hold runs or caches."""
        bodies = [*self.reader.all(TRAINING_RUN), *self.reader.all(DATASET_CACHE)]
        return sorted({body["metadata"].get("namespace", "") for body in bodies})

    def runs(self, visible: Visible) -> list[RunRow]:
        """Returns the runs of the visible namespaces."""
        return [resources.run_row(body) for body in self._visible(self.reader.all(TRAINING_RUN), visible)]

    def row(self, key: RunKey) -> RunRow | None:
        """Returns one run's line."""
        body = self.reader.copy(TRAINING_RUN, key.namespace, key.name)
        return resources.run_row(body) if body is not None else None

    def run(self, key: RunKey) -> Run | None:
        """Returns one run: what the API server and the bucket hold of it, as far as each can be read."""
        body = self.reader.copy(TRAINING_RUN, key.namespace, key.name)
        if body is None:
            return None
        uid, status, notes = body["metadata"]["uid"], resources.run_status(body), list[str]()
        pods, events, whole = tuple[Pod, ...](), tuple[Event, ...](), body
        try:
            pods = resources.pods_of(self.reader.pods(key.namespace, uid))
            events = resources.events_of(self.reader.events(key.namespace, uid))
            whole = self.reader.whole(TRAINING_RUN, key.namespace, key.name) or body
        except (SourceUnavailable, NotFound) as error:
            notes.append(f"Not everything is shown: {error}")
        run = Run(
            row=resources.run_row(body),
            uid=uid,
            message=resources.message_of(status),
            conditions=resources.conditions_of(status),
            events=events,
            pods=pods,
            caches=tuple(dataset.name for dataset in status.datasets),
            manifest=resources.manifest_text(whole, TRAINING_RUN.api_version, TRAINING_RUN.kind),
            has_logs=True,
        )
        try:
            return replace(self._with_records(run, body, self._stored(body)), notes=tuple(notes))
        except (SourceUnavailable, StoreError) as error:
            notes.append(str(error))
            return replace(run, instances=tuple(_instances(body, status)), notes=tuple(notes))

    def curves(self, key: RunKey) -> dict[str, InstanceCurves] | None:
        """Returns the event files' content of one run."""
        body = self.reader.copy(TRAINING_RUN, key.namespace, key.name)
        if body is None:
            return None
        try:
            return self._stored(body).curves
        except (StoreError, SourceUnavailable):
            return {}

    def logs(self, key: RunKey, pod: str) -> str | None:
        """Returns the end of the log of one of the run's own pods."""
        body = self.reader.copy(TRAINING_RUN, key.namespace, key.name)
        if body is None:
            return None
        for found in self.reader.pods(key.namespace, body["metadata"]["uid"]):
            if found["metadata"]["name"] == pod:
                containers = found["spec"]["containers"]
                return self.reader.log(key.namespace, pod, containers[0]["name"] if containers else "")
        return None

    def caches(self, visible: Visible) -> list[CacheRow]:
        """Returns the caches of the visible namespaces."""
        return [resources.cache_row(body) for body in self._visible(self.reader.all(DATASET_CACHE), visible)]

    def cache(self, key: RunKey) -> Cache | None:
        """Returns one cache, with what its manifest in the bucket states."""
        body = self.reader.copy(DATASET_CACHE, key.namespace, key.name)
        if body is None:
            return None
        status, notes = resources.cache_status(body), list[str]()
        events, whole = tuple[Event, ...](), body
        try:
            events = resources.events_of(self.reader.events(key.namespace, body["metadata"]["uid"]))
            whole = self.reader.whole(DATASET_CACHE, key.namespace, key.name) or body
        except (SourceUnavailable, NotFound) as error:
            notes.append(f"Not everything is shown: {error}")
        stages = tuple(
            (each.name, each.phase, f"{each.samples.done}/{each.samples.total}" if each.samples else "", each.message)
            for each in status.stages
        )
        cache = Cache(
            row=resources.cache_row(body),
            message=resources.message_of(status),
            conditions=resources.conditions_of(status),
            events=events,
            stages=stages,
            routes_kept=status.routes.kept if status.routes else 0,
            routes_total=status.routes.total if status.routes else 0,
            reasons=status.route_reasons,
            manifest=resources.manifest_text(whole, DATASET_CACHE.api_version, DATASET_CACHE.kind),
        )
        if status.digest and status.phase == "Ready":
            try:
                store = self.buckets.store(_profile(body), key.namespace)
                manifest = store.get(CacheKeys(key.namespace, status.digest).manifest, max_bytes=MAX_MANIFEST_BYTES)
                cache = with_manifest(cache, parse_cache_manifest(manifest))
            except (StoreError, SourceUnavailable, ValidationError) as error:
                notes.append(f"The cache's manifest cannot be read: {error}")
        return replace(cache, notes=tuple(notes))

    def holdings(self, visible: Visible) -> list[Holding]:
        """Returns what the buckets hold of the visible namespaces, as counted within the last minute."""
        runs, caches = self.reader.all(TRAINING_RUN), self.reader.all(DATASET_CACHE)
        names = {name for name in self.namespaces() if visible(name)}
        return [holding for name in sorted(names) for holding in self._held(name, runs, caches)]

    def _held(
        self, namespace: str, runs: Iterable[KubernetesObject], caches: Iterable[KubernetesObject]
    ) -> list[Holding]:
        until, found = self._counted.get(namespace, (0.0, []))
        if time.monotonic() < until:
            return found
        here = [body for body in (*runs, *caches) if body["metadata"].get("namespace") == namespace]
        by_uid = {body["metadata"]["uid"]: body["metadata"]["name"] for body in here}
        digests = {resources.cache_status(body).digest: body["metadata"]["name"] for body in caches if body in here}
        found = []
        for profile in sorted({_profile(body) for body in here}):
            try:
                store = self.buckets.store(profile, namespace)
                for uid, (objects, size) in _counts(store, runs_prefix(namespace)).items():
                    gone = "" if uid in by_uid else "its TrainingRun does not exist any more"
                    found.append(Holding(namespace=namespace, kind="run", name=by_uid.get(uid, ""), uid=uid,
                                         objects=objects, size_bytes=size, may_go=gone))  # fmt: skip
                for digest, (objects, size) in _counts(store, caches_prefix(namespace)).items():
                    gone = "" if digest in digests else "no DatasetCache names it"
                    found.append(Holding(namespace=namespace, kind="cache", name=digests.get(digest, ""), uid=digest,
                                         objects=objects, size_bytes=size, may_go=gone))  # fmt: skip
            except StoreError as error:
                raise SourceUnavailable(f"the bucket of {namespace} cannot be listed: {error}") from error
        self._counted[namespace] = (time.monotonic() + COUNTED_S, found)
        return found

    def _stored(self, body: KubernetesObject) -> _Stored:
        """Reads a run's records and event files; raises StoreError and SourceUnavailable."""
        metadata = body["metadata"]
        namespace, uid = metadata.get("namespace", ""), metadata["uid"]
        store = self.buckets.store(_profile(body), namespace)
        order = {stage: number for number, stage in enumerate(resources.parents_of(body.get("spec") or {}))}
        found = sorted(instances_of(store, namespace, uid), key=lambda keys: (order.get(keys.stage, 99), keys.seed))
        parents = _parents(body, found)
        records = [read_records(store, keys) for keys in found]
        instances = [assembled.instance_of(each, parents[each.keys.name]) for each in records]
        places = assembled.placements(instances)
        curves = dict[str, InstanceCurves]()
        for instance in instances:
            reading = _InStore(store, instance.keys)
            files = event_files(store, instance.keys.tensorboard_prefix)
            history = self._events.history(instance.keys.prefix, files, reading.fetch)
            curves[instance.name] = InstanceCurves(instance, places[instance.name], history, reading.picture)
        return _Stored(store, records, instances, curves)

    def _with_records(self, run: Run, body: KubernetesObject, stored: _Stored) -> Run:
        attempts, checkpoints = list[Attempt](), []
        url = self.buckets.url(_profile(body))
        for records in stored.records:
            history = stored.curves[records.keys.name].history
            attempts += _attempts(records, history, run)
            checkpoints += assembled.checkpoints_of(
                records,
                lambda key: f"{url}/{key}",
                lambda records, best: (
                    f"lead export {url}/{records.keys.prefix.rstrip('/')} bundle" + (" --best" if best else "")
                ),
            )
        config = next((found for records in reversed(stored.records)
                       if (found := resolved_config(stored.store, records))), {})  # fmt: skip
        instances = tuple(stored.instances)
        return replace(
            run, instances=instances, attempts=tuple(attempts), checkpoints=tuple(checkpoints), config=config
        )

    def _visible(self, bodies: Iterable[KubernetesObject], visible: Visible) -> list[KubernetesObject]:
        return [body for body in bodies if visible(body["metadata"].get("namespace", ""))]


def _attempts(records: InstanceRecords, history: History, run: Run) -> list[Attempt]:
    """Returns the attempts of a stage instance with the pods that still exist, and the newest failure's reason."""
    pods: dict[int, list[Pod]] = {}
    for pod in run.pods:
        if pod.instance == records.keys.name:
            pods.setdefault(pod.attempt, []).append(pod)
    lives = run.row.lives
    found = list[Attempt]()
    for attempt in assembled.attempts_of(records, history, lives=lives):
        here = pods.get(attempt.number, [])
        names = tuple(pod.name for pod in here) or attempt.pods
        nodes = tuple(dict.fromkeys(pod.node for pod in here if pod.node))
        noted = ""
        if attempt.outcome in ("Lost", "Failed"):
            sentences = (event.message for event in run.events if event.type == "Warning")
            noted = next((message for message in sentences if f"attempt {attempt.number}" in message), "")
        found.append(replace(attempt, pods=names, nodes=nodes, noted=noted))
    return found


def _parents(body: KubernetesObject, found: Sequence[InstanceKeys]) -> dict[str, str]:
    """Returns by instance the instance whose weights it began with: of the same seed where that stage has it."""
    parents, names = resources.parents_of(body.get("spec") or {}), {keys.name: keys for keys in found}
    answer = {}
    for keys in found:
        stage = parents.get(keys.stage, "")
        same = InstanceKeys(keys.namespace, keys.uid, stage, keys.seed).name if stage else ""
        first = next((name for name, each in names.items() if each.stage == stage), "")
        answer[keys.name] = same if same in names else first
    return answer


def _instances(body: KubernetesObject, status: TrainingRunStatus) -> list[Instance]:
    metadata = body["metadata"]
    keys = RunKeys(metadata.get("namespace", ""), metadata["uid"])
    return [
        resources.instance_of(entry, InstanceKeys(keys.namespace, keys.uid, entry.name, entry.seed), "")
        for entry in status.stages
    ]


def _profile(body: KubernetesObject) -> str:
    return str((body.get("spec") or {}).get("storageProfile") or "")


def _counts(store: ObjectStore, prefix: str) -> dict[str, tuple[int, int]]:
    """Returns objects and bytes by the folder below a prefix; raises StoreError."""
    found: dict[str, tuple[int, int]] = {}
    listed: Iterable[ObjectInfo] = islice(store.list(prefix), MOST_OBJECTS)
    for info in listed:
        folder = info.key.removeprefix(prefix).partition("/")[0]
        objects, size = found.get(folder, (0, 0))
        found[folder] = (objects + 1, size + info.size)
    return found
