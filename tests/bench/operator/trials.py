"""What is measured of one operator, one trial after another on an empty cluster; each returns plain numbers.

Times are read off the audit log: from the API server's receipt of the call that asks for pods (the create of a run, or
the write that says a pod has failed) to its answer to the create of the last pod.
"""

import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from bench.operator.audit import Call, span_to_last_pod, times_to_last_pod
from bench.operator.cluster import LIFE_SPACE, SPACE, BenchCluster
from bench.operator.systems import RETRYABLE, STAGE, Ours, System
from lead_testing.operator_process import wait_for

NODES = 2  # pods of a run, but for the wide one
QUIET_S = 4.0
HOPELESS_S = 900.0
Numbers = dict[str, Any]


class Trials:
    """The trials of one system; every one leaves the cluster empty."""

    def __init__(self, cluster: BenchCluster, system: System) -> None:
        self._cluster = cluster
        self._system = system
        self._audit = cluster.audit

    def bursts(self, singles: int, wide: int, runs: int) -> Numbers:
        """Runs one after another and a failed pod in each, one of many pods, many at once and a failed pod in all."""
        found: Numbers = {"load_before": os.getloadavg()[0]}
        self._start(SPACE)
        found["rss_empty_mib"] = self._system.rss_mib
        self._create("w", 1, NODES)  # opens connections
        one_by_one = [self._create(f"s{number}n", 1, NODES) for number in range(singles)]
        found["one_s"] = [seconds for result in one_by_one for seconds in result["each_s"]]
        self._begin_training(1 + singles)
        last = self._last_pods()
        found["replaced_alone_s"] = [self._fail([last[f"s{number}n0"]])[0] for number in range(singles)]
        self._settle()
        found["wide_s"] = self._create("wide", 1, wide)["span_s"]
        self._cluster.clean()
        self._settle()
        found["burst"] = self._create("b", runs, NODES)
        self._begin_training(runs)
        found["replaced_s"] = self._fail(list(self._last_pods().values()))
        found["rss_full_mib"] = self._system.rss_mib
        self._end()
        return {**found, "load_after": os.getloadavg()[0]}

    def many(self, runs: int, idle_s: float) -> Numbers:
        """Very many at once; then what the operator does while nothing happens, and after it was killed."""
        found: Numbers = {"runs": runs, "load_before": os.getloadavg()[0]}
        self._start(SPACE)
        found["rss_empty_mib"] = self._system.rss_mib
        found["burst"] = self._create("m", runs, NODES)
        self._begin_training(runs)
        found["rss_full_mib"] = self._system.rss_mib
        found["idle"] = self._idle(idle_s)
        found["restart"] = self._restart(runs, idle_s)
        self._end()
        return {**found, "load_after": os.getloadavg()[0]}

    def life(self, runs: int) -> Numbers:
        """The writes of runs from their create to their success, and of which kind they are."""
        space = LIFE_SPACE if isinstance(self._system, Ours) else SPACE
        self._start(space)
        mark = self._audit.mark()
        bodies = [self._system.a_run(f"life{number}", NODES) for number in range(runs)]
        if isinstance(self._system, Ours):
            with self._system.pod_driver(space) as driver:
                driver.script.held.add(STAGE)
                self._cluster.create_all(self._system.path(space), bodies)
                self._wait_for_condition(space, runs, "Ready")
                driver.script.held.clear()
                self._wait_for_condition(space, runs, "Succeeded")
        else:
            self._cluster.create_all(self._system.path(space), bodies)
            self._wait_for_condition(space, runs, "Running")
            for pod in self._cluster.pods(space):
                self._cluster.end_pod(pod, "Succeeded", 0)
            self._wait_for_condition(space, runs, "Succeeded")
        self._settle()
        calls = [call for call in self._ours(mark) if call.wrote and call.run.startswith("life")]
        self._end(space)
        kinds = Counter(f"{call.verb} {call.resource}" for call in calls)
        return {"writes_a_run": len(calls) / runs, "kinds": {kind: n / runs for kind, n in sorted(kinds.items())}}

    def _create(self, label: str, runs: int, nodes: int) -> Numbers:
        mark, cpu_s = self._audit.mark(), self._system.cpu_s
        bodies = [self._system.a_run(f"{label}{number}", nodes) for number in range(runs)]
        self._cluster.create_all(self._system.path(SPACE), bodies)
        calls = self._audit.wait(mark, f"{runs} runs to have {nodes} pods", _have_pods(runs * nodes), HOPELESS_S)
        begins = _creates(self._system.resource)
        return {
            "each_s": sorted(times_to_last_pod(calls, begins, nodes).values()),
            "span_s": span_to_last_pod(calls, begins),
            "creates_took_s": _span([call for call in calls if begins(call)]),
            "cpu_s": self._system.cpu_s - cpu_s,
        }

    def _begin_training(self, runs: int) -> None:
        """Brings all runs to where real ones are for most of their life: pods run, progress is known."""

        def running() -> list[dict[str, Any]]:
            pods = self._cluster.pods()
            all_run = len(pods) == runs * NODES and all(pod["status"]["phase"] == "Running" for pod in pods)
            return pods if all_run else []

        self._system.begin_training(wait_for("all pods to run", running, within_s=HOPELESS_S, poll_s=1))
        self._wait_for_condition(SPACE, runs, "Progressing" if isinstance(self._system, Ours) else "Running")
        self._settle()

    def _last_pods(self) -> dict[str, dict[str, Any]]:
        """Returns a pod that runs of each run."""
        pods = [pod for pod in self._cluster.pods() if pod["status"]["phase"] == "Running"]
        return {pod["metadata"]["name"].split("-")[0]: pod for pod in pods}

    def _fail(self, pods: list[dict[str, Any]]) -> list[float]:
        """Lets pods of different runs fail at once; returns how long each took to be replaced."""
        mark = self._audit.mark()
        self._cluster.fail_pods(pods, RETRYABLE)
        anew = self._system.pods_after_failure(NODES)
        calls = self._audit.wait(mark, "failed pods to be replaced", _have_pods(len(pods) * anew), HOPELESS_S)
        return sorted(times_to_last_pod(calls, _says_failed, anew).values())

    def _idle(self, seconds: float) -> Numbers:
        mark, cpu_s = self._audit.mark(), self._system.cpu_s
        time.sleep(seconds)  # what is measured is that nothing happens
        calls = self._ours(mark)
        return {
            "seconds": seconds,
            "writes": sum(call.wrote for call in calls),
            "lists": sum(call.verb == "list" for call in calls),
            "lease_writes": sum(call.verb in ("update", "patch") and call.resource == "leases" for call in calls),
            "cpu_share": (self._system.cpu_s - cpu_s) / seconds,
        }

    def _restart(self, runs: int, watch_s: float) -> Numbers:
        self._system.stop()
        mark, began = self._audit.mark(), time.monotonic()
        self._system.start(SPACE)
        wait_for("every run to be looked at", lambda: self._system.has_looked_at(runs), within_s=HOPELESS_S)
        took_s = time.monotonic() - began
        wait_for("every run's progress to be read", lambda: self._system.has_read_progress(runs), within_s=HOPELESS_S)
        read_s = time.monotonic() - began
        time.sleep(max(0.0, watch_s - read_s))
        return {"seconds": took_s, "read_s": read_s, "writes": sum(call.wrote for call in self._ours(mark))}

    def _wait_for_condition(self, space: str, runs: int, condition: str) -> None:
        def all_have_it() -> bool:
            items = self._cluster.api.call("GET", self._system.path(space))["items"]
            return sum(_holds(item, condition) for item in items) == runs

        wait_for(f"{runs} runs to be {condition}", all_have_it, within_s=HOPELESS_S, poll_s=1)

    def _ours(self, mark: int) -> list[Call]:
        return [call for call in self._audit.since(mark) if call.user == self._system.user]

    def _settle(self) -> None:
        self._audit.wait_for_rest(self._system.user, QUIET_S, HOPELESS_S)

    def _start(self, space: str) -> None:
        self._system.start(space)
        wait_for(f"{self._system.name} to start", self._system.ready, within_s=120)

    def _end(self, space: str = SPACE) -> None:
        self._system.stop()
        self._cluster.clean(space)


def _have_pods(count: int) -> Callable[[list[Call]], bool]:
    return lambda calls: sum(call.made("pods") for call in calls) >= count


def _creates(resource: str) -> Callable[[Call], bool]:
    return lambda call: call.made(resource)


def _says_failed(call: Call) -> bool:
    return call.user == "lead-admin" and call.verb == "patch" and call.resource == "pods/status"


def _span(calls: list[Call]) -> float:
    return max(call.answered for call in calls) - min(call.received for call in calls)


def _holds(item: dict[str, Any], condition: str) -> bool:
    conditions = item.get("status", {}).get("conditions", [])
    return any(held["type"] == condition and held["status"] == "True" for held in conditions)
