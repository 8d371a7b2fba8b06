"""Takes objects through their chains: after each change as good as a new object of that spec, at the end as before."""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lead_testing.any_spec.chains import FIXED, REMEDY, WRONG, Chain, Step
from lead_testing.any_spec.states import CACHE, RUN
from lead_testing.any_spec.trying import HELD_UP, KIND_WORDS, NOW, RESTS, Tried, clear, collection, offer
from lead_testing.api_bench import Bench
from lead_testing.operator_process import wait_for
from lead_testing.pod_driver import ApiRefused

# How far training came, and on which digests, is history that no new object has; a source is looked at by the clock.
NOT_OF_THE_SPEC = ("Checkpointed", "CheckpointsValid", "SourceDrift")


@dataclass
class Walk:
    """One chain under way."""

    chain: Chain
    held: dict[str, Any]
    first: dict[str, Any] = field(default_factory=dict)  # what it was like before the first step


def try_chains(bench: Bench, chosen: list[Chain], tried: Tried) -> None:
    """Takes chains side by side through all their steps, back to their first specs, and runs to their end."""
    walks = [Walk(chain, chain.first) for chain in chosen]
    for walk in walks:
        _make(bench, walk, walk.chain.name, tried)
    for walk in walks:
        walk.first = _when_at_rest(bench, walk.chain.kind, walk.chain.name, tried)
    for number in range(len(chosen[0].steps)):
        for walk in walks:
            _take(bench, walk, walk.chain.steps[number], tried)
        _compare(bench, walks, f"step {number + 1}", tried)
    for walk in walks:
        walk.held = walk.chain.first
        _ask(bench, walk, walk.held)
    for walk in walks:
        _until_equal(bench, walk, walk.first.copy, "rolled back", tried)
    _end(bench, [walk for walk in walks if walk.chain.kind == RUN], tried)
    tried.counts["chains"] += len(walks)
    clear(bench)


def _take(bench: Bench, walk: Walk, step: Step, tried: Tried) -> None:
    before = _spec(bench, walk)
    refused = _ask(bench, walk, step.spec)
    tried.counts["tried"] += 1
    what = f"{walk.chain.name}, {step.what}: {step.change}"
    if step.what == WRONG and refused:
        tried.refusal(what, refused, [step.change.field])
    elif step.what == FIXED and refused:
        tried.refusal(what, refused, [REMEDY])
        tried.refusal(what, refused, [f"spec.{step.change.path[0]}"])
    elif refused:
        tried.refusal(what, refused, [str(step.change.path[0])])
    elif step.what in (WRONG, FIXED):
        tried.wrong.append(f"{what} was taken")
    else:
        walk.held = step.spec
    if refused and _spec(bench, walk) != before:
        tried.wrong.append(f"{what} was refused and has changed the spec")


def _compare(bench: Bench, walks: list[Walk], when: str, tried: Tried) -> None:
    """Makes a new object of each spec that is held now, and waits until old and new are alike."""
    for walk in walks:
        _make(bench, walk, _new(walk), tried)
    for walk in walks:
        _when_at_rest(bench, walk.chain.kind, _new(walk), tried)
        _until_equal(bench, walk, partial(_view, bench, walk.chain.kind, _new(walk)), when, tried)
    for walk in walks:
        _remove_new(bench, walk)


def _remove_new(bench: Bench, walk: Walk) -> None:
    kind, name = walk.chain.kind, _new(walk)
    path, uid = f"{collection(bench, kind)}/{name}", bench.get(KIND_WORDS[kind], name)["metadata"]["uid"]
    if kind == CACHE:  # the old object uses the same data: one that is to take it along would stay
        bench.driver.api.call("PATCH", path, {"spec": {"retain": "Retain"}})
    bench.driver.api.call("DELETE", path)
    wait_for(f"{name} to be gone", lambda: not bench.get(KIND_WORDS[kind], name))
    pods = f"/api/v1/namespaces/{bench.namespace}/pods?labelSelector=lead.dev/owner-uid={uid}"
    bench.driver.api.call("DELETE", pods, NOW)


def _end(bench: Bench, walks: list[Walk], tried: Tried) -> None:
    """Lets the runs train to their end."""
    bench.driver.script.held.clear()
    for walk in walks:
        phase = bench.wait_phase("trun", walk.chain.name, "Succeeded", "Failed", within_s=bench.patience_s)["phase"]
        if phase != "Succeeded":
            tried.wrong.append(f"{walk.chain.name} was rolled back and is {phase} in the end")
    bench.driver.script.held.add("pretrain")


def _make(bench: Bench, walk: Walk, name: str, tried: Tried) -> None:
    body = {"apiVersion": "lead.dev/v1alpha1", "kind": walk.chain.kind, "metadata": {"name": name}, "spec": walk.held}
    if refused := offer(bench, body):
        tried.wrong.append(f"{walk.chain.name}: a new object of its spec was refused: {refused}")


def _new(walk: Walk) -> str:
    return f"new-{walk.chain.name}"


def _ask(bench: Bench, walk: Walk, spec: dict[str, Any]) -> str:
    """Replaces the whole spec; returns what the API server says against it, "" where it took it."""
    word = KIND_WORDS[walk.chain.kind]
    path = f"{collection(bench, walk.chain.kind)}/{walk.chain.name}?fieldValidation=Strict"
    while True:
        body = {**bench.get(word, walk.chain.name), "spec": copy.deepcopy(spec)}
        try:
            bench.driver.api.call("PUT", path, body)
        except ApiRefused as refused:
            if ": 409 " in str(refused):  # the operator has written its status meanwhile
                continue
            return str(refused)
        return ""


def _spec(bench: Bench, walk: Walk) -> Any:
    return bench.get(KIND_WORDS[walk.chain.kind], walk.chain.name).get("spec")


def _when_at_rest(bench: Bench, kind: str, name: str, tried: Tried) -> dict[str, Any]:
    """Returns what an object is like as soon as the operator has answered its newest spec and rests."""
    started, last = time.monotonic(), dict[str, Any]()

    def at_rest() -> bool:
        last.clear()
        last.update(_view(bench, kind, name))
        return bool(last["current"] and (last["phase"] in (*RESTS, "Running") or last["reason"] in HELD_UP))

    try:
        wait_for(f"{name} to rest", at_rest, within_s=bench.patience_s, poll_s=0.2)
        tried.settled_s.append(time.monotonic() - started)
    except AssertionError:
        tried.wrong.append(f"{name} has not settled: {last}")
    return last


def _until_equal(bench: Bench, walk: Walk, wanted: Callable[[], dict[str, Any]], when: str, tried: Tried) -> None:
    last: list[dict[str, Any]] = []

    def equal() -> bool:
        last[:] = [_view(bench, walk.chain.kind, walk.chain.name), wanted()]
        return last[0] == last[1]

    try:
        wait_for("the same", equal, within_s=bench.patience_s, poll_s=0.2)
        tried.counts["settled"] += 1
    except AssertionError:
        tried.wrong.append(f"{walk.chain.name}, {when} ({walk.held}): found {last[0]}, expected {last[1]}")


def _view(bench: Bench, kind: str, name: str) -> dict[str, Any]:
    """Returns what must not depend on how an object came to its spec."""
    body = bench.get(KIND_WORDS[kind], name)
    status, uid = body.get("status", {}), body.get("metadata", {}).get("uid")
    conditions = [c for c in status.get("conditions", []) if c["type"] not in NOT_OF_THE_SPEC]
    found = {
        "current": bool(body) and status.get("observedGeneration") == body["metadata"]["generation"],
        "phase": status.get("phase"),
        "reason": status.get("reason"),
        "conditions": sorted(f"{c['type']}={c['status']} {c['reason']}" for c in conditions),
    }
    if kind == CACHE:
        return found | {key: status.get(key) for key in ("digest", "samples", "routes", "sizeBytes")}
    pods = [pod for pod in bench.items("pod") if pod["metadata"]["labels"].get("lead.dev/owner-uid") == uid]
    return found | {"pods": sum(map(_lives, pods)), "restarts": status.get("restarts")}


def _lives(pod: dict[str, Any]) -> bool:
    return pod["status"].get("phase") not in ("Succeeded", "Failed")
