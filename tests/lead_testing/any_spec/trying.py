"""Puts specs before the API server and the operator: refused by name, or settled with a reason; then all is cleared."""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from lead_testing.any_spec.states import CACHE, MOST_PODS, RUN, State, pods_asked
from lead_testing.api_bench import Bench
from lead_testing.operator_process import wait_for
from lead_testing.pod_driver import ApiRefused

KIND_WORDS = {RUN: "trun", CACHE: "dsc"}
PLURALS = {RUN: "trainingruns", CACHE: "datasetcaches"}
RESTS = ("Succeeded", "Ready", "Failed", "Suspended", "Pending")
HELD_UP = ("ObjectsRefused",)  # tried again for ever, and the condition says what to raise
STAYS = "town"  # the cache that everything trains on
NOW = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}


@dataclass
class Tried:
    """What came of all that was tried."""

    wrong: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    settled_s: list[float] = field(default_factory=list)

    def refusal(self, what: object, said: str, names: Iterable[str]) -> None:
        """Notes a refusal, which has to hold one of the names."""
        self.counts["refused"] += 1
        if not any(name in said for name in names):
            self.wrong.append(f"{what} was refused without its name: {said}")


def collection(bench: Bench, kind: str) -> str:
    """Returns the path of a kind's resources in the bench's namespace."""
    return f"/apis/lead.dev/v1alpha1/namespaces/{bench.namespace}/{PLURALS[kind]}"


def offer(bench: Bench, body: dict[str, Any], *, dry: bool = False) -> str:
    """Asks the API server to create a resource; returns what it says against it, "" where it took it."""
    try:
        query = "?fieldValidation=Strict" + ("&dryRun=All" if dry else "")
        bench.driver.api.call("POST", collection(bench, body["kind"]) + query, body)
    except ApiRefused as refused:
        return str(refused)
    return ""


def try_states(bench: Bench, named: dict[str, State], tried: Tried) -> None:
    """Tries specs side by side, the operator at work; clears up after them."""
    taken = {name: state for name, state in named.items() if _is_taken(bench, name, state, tried)}
    started, open_names = time.monotonic(), set(taken)

    def all_settled() -> bool:
        for name in [name for name in open_names if _settled(bench, name, taken[name].kind)]:
            open_names.remove(name)
            tried.settled_s.append(time.monotonic() - started)
        return not open_names

    try:
        wait_for("nothing to stand still", all_settled, within_s=bench.patience_s, poll_s=0.5)
    except AssertionError:
        tried.wrong += [f"{taken[name]} has not settled: {_told(bench, name, taken[name])}" for name in open_names]
    tried.counts["settled"] += len(taken) - len(open_names)
    clear(bench)


def clear(bench: Bench) -> None:
    """Deletes all resources but the cache that stays, and what was made for them: no garbage collector lives here."""
    api = bench.driver.api
    api.call("DELETE", collection(bench, RUN))
    for cache in bench.items("dsc"):
        if cache["metadata"]["name"] != STAYS:
            api.call("DELETE", f"{collection(bench, CACHE)}/{cache['metadata']['name']}")
    for kind in ("trun", "dsc"):
        wait_for(f"every {kind} to be gone", lambda k=kind: {i["metadata"]["name"] for i in bench.items(k)} <= {STAYS})
    for plural in ("pods", "persistentvolumeclaims", "services"):
        api.call("DELETE", f"/api/v1/namespaces/{bench.namespace}/{plural}", NOW)


def _is_taken(bench: Bench, name: str, state: State, tried: Tried) -> bool:
    """Offers a spec; tells whether there is now something to settle."""
    body = state.manifest(name)
    dry = not state.bad and pods_asked(body) > MOST_PODS
    refused = offer(bench, body, dry=dry)
    tried.counts["tried"] += 1
    tried.counts["invalid"] += bool(state.bad)
    if refused and state.bad:
        tried.counts["invalid refused"] += 1
        tried.refusal(state, refused, [change.field for change in state.blamed])
    elif refused:
        tried.refusal(state, refused, [str(change.path[0]) for change in state.blamed])
    elif state.bad:
        tried.wrong.append(f"{state} was taken")
    tried.counts["taken"] += not refused
    return not refused and not dry


def _settled(bench: Bench, name: str, kind: str) -> bool:
    body = bench.get(KIND_WORDS[kind], name)
    status = body.get("status", {})
    if not body:  # its time to live was 0
        return True
    current = status.get("observedGeneration") == body["metadata"]["generation"] and status.get("reason")
    return bool(current and (status.get("phase") in RESTS or status["reason"] in HELD_UP))


def _told(bench: Bench, name: str, state: State) -> str:
    status = bench.status(KIND_WORDS[state.kind], name)
    return f"{status.get('phase')} {status.get('reason')} {status.get('conditions')}"[:1000]
