"""The release, its two namespaces for runs, and one live run in them, as faults work on it."""

import base64
import contextlib
import json
import random
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from campaign.live.plan import LivePlan
from lead_protocol.object_keys import InstanceKeys
from lead_protocol.store.object_store import ObjectStore
from lead_testing.installed import Installed, fresh_namespace, helm, uninstall, upload_tree
from lead_testing.local_cluster import Cluster
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.statuses import newest_entry
from lead_trainer.example_worlds.lead.tree import write_example_tree

Seen = TypeVar("Seen")
CACHE, EPOCHS = "town", 20
BUSY_S = 120.0  # an API server that is paused by one fault is waited for by all others
PATIENT = {"maxRestarts": 30, "maxInfraRestarts": 50, "noProgressLimit": 10}
_TWO_STAGES = [
    {"name": "pretrain", "epochs": EPOCHS // 2},
    {"name": "again", "epochs": EPOCHS // 2, "initFrom": {"stage": "pretrain"}},
]  # fmt: skip
_WARM = {"medium": "PersistentVolume", "storageClassName": "lead-local", "sizeLimit": "1Gi"}
STORIES: dict[str, dict[str, Any]] = {
    "one": {"nodes": 1},
    "two": {"nodes": 2},
    "staged": {"nodes": 1, "stages": _TWO_STAGES},
    # What a restart costs is trained for longer than the run may stand still.
    "rare": {"nodes": 1, "checkpoint": {"everyEpochs": EPOCHS // 2},
             "failurePolicy": {**PATIENT, "hangTimeoutSeconds": 20}},
    "warm": {"nodes": 1, "sessionCache": _WARM},
}  # fmt: skip
SAME_WEIGHTS = {"rare": "one", "warm": "one"}  # what they do besides leaves no trace in the weights


def insist(look: Callable[[], Seen], deadline_s: float = BUSY_S) -> Seen:
    """Returns what a command comes to once the API server answers it; raises its last error after the deadline."""
    deadline = time.monotonic() + deadline_s
    while True:
        try:
            return look()
        except (AssertionError, json.JSONDecodeError):
            if time.monotonic() > deadline:
                raise
            time.sleep(2)


@dataclass
class Story:
    """All statuses that one object had, oldest first, and the times of this machine at which they were seen."""

    uid: str = ""
    statuses: list[dict[str, Any]] = field(default_factory=list)
    gone: bool = False

    @property
    def newest(self) -> dict[str, Any]:
        """The newest status; empty before the first."""
        return self.statuses[-1] if self.statuses else {}


class Watch:
    """Follows every TrainingRun and DatasetCache of the cluster, by one kubectl each, through any outage."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._closed = threading.Event()
        self._children: list[subprocess.Popen[str]] = []
        self._lock = threading.Lock()
        self.seen: dict[tuple[str, str, str], Story] = {}  # kind, namespace, name and UID in one
        for kind in ("trainingruns", "datasetcaches"):
            threading.Thread(target=self._follow, args=(kind,), daemon=True).start()

    def close(self) -> None:
        """Ends following."""
        self._closed.set()
        for child in self._children:
            child.terminate()

    def of(self, kind: str, namespace: str, name: str) -> Story:
        """Returns what was seen of the newest object of that name."""
        with self._lock:
            return self.seen.setdefault((kind, namespace, name), Story())

    def _follow(self, kind: str) -> None:
        binary = self._cluster.bin_dir / "kubectl"
        command = [str(binary) if binary.exists() else "kubectl", "get", kind, "-A", "-o", "json", "--watch",
                   "--output-watch-events"]  # fmt: skip
        while not self._closed.wait(1):
            child = subprocess.Popen(
                command, env=self._cluster.environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            self._children.append(child)
            assert child.stdout is not None
            for line in child.stdout:  # one event each
                if line.endswith("}\n"):
                    self._note(json.loads(line))
            child.wait()

    def _note(self, event: dict[str, Any]) -> None:
        body = event["object"]
        if event["type"] not in ("ADDED", "MODIFIED", "DELETED"):
            return
        meta = body["metadata"]
        story = self.of(body["kind"], meta["namespace"], meta["name"])
        if story.uid not in ("", meta["uid"]):
            story.statuses.clear()  # another object of that name
        story.uid, story.gone = meta["uid"], event["type"] == "DELETED"
        if not story.gone and body.get("status", {}) != story.newest:
            story.statuses.append(body.get("status", {}))


@dataclass(frozen=True)
class Scene:
    """One release with two namespaces for runs."""

    release: Installed
    homes: tuple[Installed, ...]
    images: dict[str, str]
    watch: Watch
    turn: threading.RLock = field(default_factory=threading.RLock)  # shared faults come one after another

    def helm_upgrade(self, *settings: str, **images: str) -> None:
        """Upgrades the release with other values."""
        helm(self.release, "upgrade", {**self.images, **images}, *self.values, *settings)

    def in_the_bucket(self, act: Callable[[ObjectStore], Seen]) -> Seen:
        """Acts with the root user's key, again while the store is away; LookupError of `act` goes up at once."""
        deadline = time.monotonic() + BUSY_S
        while True:
            try:
                with self.release.store() as store:
                    return act(store)
            except LookupError:
                raise
            except Exception:  # whatever an outage by another fault comes to
                if time.monotonic() > deadline:
                    raise
                time.sleep(2)

    @property
    def values(self) -> tuple[str, ...]:
        """What the release is installed with besides the images."""
        return (f"runs.namespaces={{{','.join(home.namespace for home in self.homes)}}}",)


@contextlib.contextmanager
def installed_scene(cluster: Cluster, images: dict[str, str], folder: Path) -> Iterator[Scene]:
    """Installs a release with two namespaces for runs and a cache in each; removes all three at the end."""
    word = uuid.uuid4().hex[:4]
    release = fresh_namespace(cluster, f"lead-live-{word}")
    homes = tuple(Installed(cluster, f"live-{letter}-{word}") for letter in "ab")
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    for home in homes:
        release.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": home.namespace, "labels": labels}})
    watch = Watch(cluster)
    scene = Scene(release, homes, images, watch)
    try:
        helm(release, "install", images, *scene.values)
        write_example_tree(folder / "tree", routes=1, frames=8, seed=1, failed_routes=0)
        with release.store() as store:
            for home in homes:
                upload_tree(store, folder / "tree", f"datasets/{home.namespace}/town")
        for home in homes:
            home.apply(cache_of(home))
        for home in homes:
            home.wait_for_phase("datasetcache", CACHE, "Ready", deadline_s=900)
        yield scene
    finally:
        watch.close()
        for home in homes:
            home.run("kubectl", "delete", "trainingruns,datasetcaches", "--all", "--wait", "--timeout=60s")
        uninstall(release)
        for home in homes:
            home.run("kubectl", "delete", "namespace", home.namespace, "--wait", "--timeout=120s")


def cache_of(home: Installed) -> dict[str, Any]:
    """Returns the DatasetCache of one namespace for runs."""
    cache = a_dataset_cache(CACHE, f"datasets/{home.namespace}/town")
    cache["spec"]["build"] |= {"parallelism": 1}
    return cache


@dataclass
class LiveRun:
    """One run that trains, and what a fault needs of it."""

    scene: Scene
    home: Installed
    name: str
    plan: LivePlan
    rng: random.Random

    @property
    def story(self) -> Story:
        """What was seen of it so far."""
        return self.scene.watch.of("TrainingRun", self.home.namespace, self.name)

    @property
    def status(self) -> dict[str, Any]:
        """Its newest status."""
        return self.story.newest

    @property
    def nodes(self) -> int:
        """How many pods an attempt has."""
        return int(STORIES[self.plan.story]["nodes"])

    @property
    def manifest(self) -> dict[str, Any]:
        """What is applied."""
        spec = {"stages": [{"name": "pretrain", "epochs": EPOCHS}], "failurePolicy": PATIENT, "gracePeriodSeconds": 30}
        return a_training_run(self.name, CACHE, **{**spec, **STORIES[self.plan.story]})

    @property
    def epochs(self) -> int:
        """Epochs that all stages have completed together."""
        return sum(int((entry.get("progress") or {}).get("epoch") or 0) for entry in self.status.get("stages") or [])

    @property
    def over(self) -> bool:
        """Whether it has ended; an end that a fault forges has no time."""
        return self.status.get("phase") in ("Succeeded", "Failed") and "completionTime" in self.status

    def do(self, *arguments: str, stdin: str = "") -> str:
        """Runs kubectl in the namespace of the run, again while the API server is away."""
        return insist(lambda: self.home.kubectl("--request-timeout=60s", *arguments, stdin=stdin))

    def release_do(self, *arguments: str, stdin: str = "") -> str:
        """Runs kubectl in the namespace of the release, again while the API server is away."""
        return insist(lambda: self.scene.release.kubectl("--request-timeout=60s", *arguments, stdin=stdin))

    def wait(self, look: Callable[["LiveRun"], object], deadline_s: float) -> bool:
        """Waits until `look` is true; tells whether it came to be."""
        deadline = time.monotonic() + deadline_s
        while not look(self):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.25)
        return True

    def pods(self, phase: str = "Running") -> list[dict[str, Any]]:
        """Returns its pods in that phase, by name."""
        found = insist(lambda: self.home.items("pods", f"lead.dev/run={self.name}"))
        return sorted((p for p in found if p["status"].get("phase") == phase), key=lambda p: p["metadata"]["name"])

    def a_pod(self) -> dict[str, Any]:
        """Returns one of its live pods; raises LookupError where it has none within a minute."""
        deadline = time.monotonic() + 60
        while not (found := self.pods()):
            if self.over or time.monotonic() > deadline:
                raise LookupError(f"{self.name} has no pod that runs")
            time.sleep(1)
        return self.rng.choice(found)

    def keys(self) -> InstanceKeys:
        """Returns the keys of the stage instance that it trains."""
        entry = newest_entry(self.status)
        return InstanceKeys(self.home.namespace, self.story.uid, entry["name"], int(entry["seed"]))


def secret_of(installed: Installed, name: str) -> dict[str, bytes]:
    """Returns what a Secret holds."""
    data = insist(lambda: installed.get("secret", name))["data"]
    return {key: base64.b64decode(value) for key, value in data.items()}
