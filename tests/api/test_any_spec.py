"""Whatever spec one writes: it is refused with the field's name, or the run settles with a reason, and nothing breaks.

Specs are drawn from the CRD's own schema: one field at a time takes values at, inside and beyond its bounds.
"""

import copy
import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lead_operator.resources.crd_defaults import read_schema
from lead_testing.api_bench import Bench
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import wait_for
from lead_testing.pod_driver import ApiRefused

SPECS = int(os.environ.get("LEAD_TEST_SPECS", "100"))
SEED = os.environ.get("LEAD_TEST_SEED", "1")
SETTLED = ("Pending", "Caching", "Running", "Suspended", "Succeeded", "Failed", "Starting")
RUNS = "/apis/lead.dev/v1alpha1/namespaces/{}/trainingruns"
WRONG_TYPE: dict[str, Any] = {"string": 7, "integer": "seven", "boolean": "yes", "object": [], "array": {}}


@dataclass(frozen=True)
class Spec:
    """A spec in which one field was set; `bad` is why the schema must refuse it, empty where it may be taken."""

    path: tuple[str, ...]
    value: Any
    bad: str

    def manifest(self, name: str) -> dict[str, Any]:
        """Returns the run, with everything else as in the simplest run."""
        body = copy.deepcopy(a_training_run(name, "town", nodes=1))
        place = body["spec"]
        for part in self.path[:-1]:
            place = place.setdefault(part, {})
        place[self.path[-1]] = self.value
        return body

    def __str__(self) -> str:
        return f"spec.{'.'.join(self.path)} = {json.dumps(self.value)[:80]} ({self.bad or 'fine'})"


def specs(schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[Spec]:
    """Yields specs for every field of an object schema."""
    for name, child in schema.get("properties", {}).items():
        here = (*path, name)
        kind = child.get("type", "")
        if kind in WRONG_TYPE:
            yield Spec(here, WRONG_TYPE[kind], "wrong type")
        if kind == "object" and child.get("properties"):
            yield from specs(child, here)
            yield Spec((*here, "bogus"), 1, "unknown field")
        yield from (Spec(here, value, bad) for value, bad in values(child, kind))


def values(child: dict[str, Any], kind: str) -> Iterator[tuple[Any, str]]:
    """Yields values at and beyond the bounds of one field."""
    if "enum" in child:
        yield from ((value, "") for value in child["enum"])
        yield "Bogus", "not in enum"
    elif kind == "integer":
        low, high = child.get("minimum"), child.get("maximum")
        yield from ([(low, ""), (low - 1, "below minimum")] if low is not None else [])
        yield from ([(high, ""), (high + 1, "above maximum")] if high is not None else [])
    elif kind == "string" and "maxLength" in child:
        yield "a" * (child["maxLength"] + 1), "too long"
        yield from ([("\u202e ../$(X)\n", "pattern")] if "pattern" in child else [])
    elif kind == "array" and "maxItems" in child:
        yield [{}] * (child["maxItems"] + 1), "too many items"
    elif kind == "boolean":
        yield from ((value, "") for value in (True, False))


def test_any_spec_is_refused_by_name_or_settles_with_a_reason(bench: Bench) -> None:
    chosen = list(specs(read_schema("TrainingRun")["properties"]["spec"]))
    random.Random(SEED).shuffle(chosen)
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"))
    bench.wait_phase("dsc", "town", "Ready")
    taken, wrong = {}, []
    for number, spec in enumerate(chosen[:SPECS]):
        name = f"spec-{number}"
        try:
            query = "?fieldValidation=Strict" + ("&dryRun=All" if spec.path[-1] == "nodes" else "")
            bench.driver.api.call("POST", RUNS.format(bench.namespace) + query, spec.manifest(name))
            if spec.bad:
                wrong.append(f"{spec} was taken")
            elif "dryRun" not in query:
                taken[name] = spec
        except ApiRefused as refused:
            if spec.path[-1] not in str(refused) and spec.path[0] not in str(refused):
                wrong.append(f"{spec} was refused without its name: {refused}")
    assert wrong == []
    assert len(taken) >= SPECS // 20
    for name, spec in taken.items():
        status = bench.wait_phase("tr", name, *SETTLED)
        assert status.get("reason"), spec
    wait_for(
        "nothing to stand still", lambda: all(_settled(bench, n) for n in taken), within_s=bench.patience_s, poll_s=2
    )
    assert bench.operator.page("healthz") == (200, "ok")
    errors = [line for line in bench.operator.log.read_text().splitlines() if '"level": "error"' in line]
    beginning = "storage is (re)initializing"  # what an API server says of new kinds
    assert [line for line in errors if beginning not in line] == []


def _settled(bench: Bench, name: str) -> bool:
    run = bench.get("tr", name)
    status = run.get("status", {})
    if not run:  # its time to live was 0
        return True
    current = status.get("observedGeneration") == run["metadata"]["generation"]
    return bool(current and status.get("phase") in ("Succeeded", "Failed", "Suspended", "Pending"))
