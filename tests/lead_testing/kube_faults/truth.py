"""Watches every version of every object beside the operator, straight at the API server, and judges what it sees.

Checked on each version of a pod: one name is made once, and no two attempts of one stage instance live at a time.
Checked on each version of a run: attempts never go back; within an attempt epochs and steps never go back; between
attempts an epoch goes back only where a failure or a stop is recorded; budgets hold; an end stays an end.
"""

import json
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import urllib3

from lead_testing.pod_driver import Api, ApiRefused

Body = dict[str, Any]
_WATCHED = ("api/v1/namespaces/{}/pods", "apis/lead.dev/v1alpha1/namespaces/{}/trainingruns")


class Truth:
    """A context manager; `violations` are sentences, empty while all promises hold."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self.violations: list[str] = []
        self.versions = 0
        self.first_seen: dict[tuple[str, str], float] = {}  # (kind, name) -> monotonic time
        self._api = Api(kubeconfig)
        self._namespace = namespace
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._follow, args=(p,), daemon=True) for p in _WATCHED]
        self._pods: dict[str, Body] = {}  # by UID, while they exist
        self._made: dict[tuple[str, str], str] = {}  # (owner's UID, name) -> UID of the first
        self._runs: dict[str, Body] = {}  # by UID, the newest status that was not empty
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(10)

    def _follow(self, path: str) -> None:
        where = "/" + path.format(self._namespace)
        version = "0"
        while not self._stop.is_set():
            try:
                for event in self._api.watch(where, version, timeout_s=2):
                    version = event["object"]["metadata"].get("resourceVersion", "0")
                    if event["type"] == "ERROR":
                        version = self._anew(path)
                        break
                    if event["type"] != "BOOKMARK":
                        with self._lock:
                            self._judge(event["type"], event["object"], is_pod=path.endswith("pods"))
            except (urllib3.exceptions.HTTPError, ApiRefused):
                version = self._anew(path)
                self._stop.wait(0.2)

    def _anew(self, path: str) -> str:
        """Forgets pods whose end may have been missed; returns the version that tells all there is."""
        if path.endswith("pods"):
            with self._lock:
                self._pods.clear()
        return "0"

    def _judge(self, change: str, body: Body, *, is_pod: bool) -> None:
        self.versions += 1
        key = (body.get("kind", "Pod" if is_pod else "TrainingRun"), body["metadata"]["name"])
        self.first_seen.setdefault(key, time.monotonic())
        if is_pod:
            self._judge_pod(change, body)
        else:
            self._judge_run(change, body)

    # --- pods --------------------------------------------------------------------------------------------------------

    def _judge_pod(self, change: str, pod: Body) -> None:
        metadata = pod["metadata"]
        if change == "DELETED":
            self._pods.pop(metadata["uid"], None)
            return
        new = metadata["uid"] not in self._pods
        self._pods[metadata["uid"]] = pod
        if not new or "lead.dev/owner-uid" not in metadata.get("labels", {}):
            return
        labels = metadata["labels"]
        first = self._made.setdefault((labels["lead.dev/owner-uid"], metadata["name"]), metadata["uid"])
        if first != metadata["uid"]:
            self.violations.append(f"pod {metadata['name']} was made twice")
        for other in self._pods.values():
            if other["metadata"]["uid"] != metadata["uid"] and _may_write(other) and _clash(labels, other):
                self.violations.append(f"pod {metadata['name']} was made while {other['metadata']['name']} may write")

    # --- runs --------------------------------------------------------------------------------------------------------

    def _judge_run(self, change: str, run: Body) -> None:
        uid, status = run["metadata"]["uid"], run.get("status") or {}
        before = self._runs.get(uid, {})
        if change == "DELETED" or not status:
            return
        self._runs[uid] = status
        name = run["metadata"]["name"]
        for what in _went_back(before, status):
            self.violations.append(f"run {name}: {what}")
        policy, restarts = run["spec"]["failurePolicy"], status.get("restarts", {})
        for account, limit in (("program", "maxRestarts"), ("infrastructure", "maxInfraRestarts")):
            if restarts.get(account, 0) > policy[limit]:
                self.violations.append(f"run {name}: {account} restarts {restarts[account]} above {limit}")


def _may_write(pod: Body) -> bool:
    return pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def _clash(labels: dict[str, str], other: Body) -> bool:
    """Tells whether a pod with these labels and another one would do the same work at the same time."""
    theirs = other["metadata"].get("labels", {})
    same = ("lead.dev/owner-uid", "lead.dev/role", "lead.dev/stage", "lead.dev/seed")
    if any(labels.get(key) != theirs.get(key) for key in same):
        return False
    if labels.get("lead.dev/role") == "build":
        return bool(labels.get("lead.dev/index") == theirs.get("lead.dev/index"))
    return bool(labels.get("lead.dev/attempt") != theirs.get("lead.dev/attempt"))


def _went_back(before: Body, after: Body) -> list[str]:
    found = []
    ends = ("Succeeded", "Failed")
    if before.get("phase") in ends and after.get("phase") != before["phase"]:
        found.append(f"was {before['phase']} and is {after.get('phase')}")
    old = {(s["name"], s["seed"]): s for s in before.get("stages", [])}
    for entry in after.get("stages", []):
        held = old.get((entry["name"], entry["seed"]), {})
        where = f"{entry['name']}-s{entry['seed']}"
        if entry.get("attempt", 0) < held.get("attempt", 0):
            found.append(f"{where} went from attempt {held['attempt']} back to {entry.get('attempt', 0)}")
        if held.get("phase") == "Succeeded" and entry["phase"] != "Succeeded":
            found.append(f"{where} had succeeded and is {entry['phase']}")
        if held and entry["phase"] != "Succeeded":  # of one that has, no more than how far it came is kept
            found += _progress_back(held, entry, after)
    return found


def _progress_back(before: Body, entry: Body, after: Body) -> list[str]:
    one, two = before.get("progress", {}), entry.get("progress", {})
    if two.get("epoch", 0) >= one.get("epoch", 0) and two.get("step", 0) >= one.get("step", 0):
        return []
    if one.get("attempt") == two.get("attempt"):
        return [f"progress went back within attempt {one.get('attempt')}: {json.dumps(one)} to {json.dumps(two)}"]
    recorded = after.get("lastFailure") or entry.get("resumedFromStep") or "suspend" in json.dumps(after).lower()
    return [] if recorded else [f"progress went back without a record: {json.dumps(one)} to {json.dumps(two)}"]
