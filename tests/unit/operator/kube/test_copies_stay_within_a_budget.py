"""Copies take so many bytes and no more; who takes most is cut first."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lead_operator.kube.client import KubeClient
from lead_operator.kube.copies import trim_pod
from lead_operator.kube.copy_budget import CUT, CopyBudget, cut
from lead_operator.kube.informers import Informers
from lead_operator.kube.kinds import DATASET_CACHE, POD, TRAINING_RUN
from lead_operator.kube.object_reader import SIZE, read_resource
from lead_operator.kube.observe import observe_cache
from lead_testing.makers import SETTINGS, a_cache_body, a_run_body

RUN = TRAINING_RUN.kind


def a_copy(namespace: str, number: int, size: int, kind: str = RUN) -> dict[str, Any]:
    body = a_run_body() if kind == RUN else a_cache_body()
    body["metadata"] |= {"namespace": namespace, "name": f"run-{number}", "uid": f"{namespace}-{number}"}
    body["metadata"]["resourceVersion"] = str(number + 1)
    conditions = [{"type": "Ready", "status": "True"}, {"type": "Progressing", "status": "True"}]
    body["status"] = {"phase": "Running", "resumedFrom": "0", "digest": "d", "observedGeneration": 1}
    body["status"]["conditions"] = conditions
    return body | {SIZE: size}


def test_the_largest_of_the_namespace_with_most_are_cut() -> None:
    """Audit: S-2
    Audit: S19
    """
    budget = CopyBudget(most=100)
    assert budget.note((RUN, "bob", "a"), 40) == []
    assert budget.note((RUN, "alice", "a"), 10) == []
    assert budget.note((RUN, "alice", "b"), 30) == []
    assert budget.note((RUN, "alice", "c"), 25) == [(RUN, "alice", "b")]
    assert budget.note((RUN, "alice", "b"), 0) == []
    assert budget.note((RUN, "alice", "d"), 40) == [(RUN, "alice", "d")]
    for name in "dabc":
        assert budget.note((RUN, "alice", name), 0) == []
    assert budget.note((RUN, "bob", "a"), 0) == [] and budget._totals == {}


def test_a_cut_copy_says_to_others_what_the_whole_one_says() -> None:
    whole = a_copy("bob", 1, 10, "DatasetCache")
    assert observe_cache("a", cut(whole)) == observe_cache("a", whole)
    assert cut(whole)["metadata"] == whole["metadata"] and "resumedFrom" not in cut(whole)["status"]


@pytest.mark.parametrize("namespaces", [("alice", "bob"), ("",)])
def test_informers_cut_what_goes_over(namespaces: tuple[str, ...]) -> None:
    """Audit: S-2"""
    client = cast(KubeClient, SimpleNamespace())
    informers = Informers(client, namespaces, SETTINGS, lambda key: None, lambda key: None, CopyBudget(1000))
    for number in range(50):
        informers.of(TRAINING_RUN, "alice").note_own_write(a_copy("alice", number, 100))
    informers.of(DATASET_CACHE, "bob").note_own_write(a_copy("bob", 0, 100, "DatasetCache"))
    assert sum(CUT not in body for body in informers.all(TRAINING_RUN)) == 9
    assert all(CUT not in body for body in informers.all(DATASET_CACHE))
    informers.of(TRAINING_RUN, "alice").forget("alice", "run-49")


def test_a_resource_knows_how_large_it_is() -> None:
    small, large = (read_resource_of(spec) for spec in ({}, {"podOverrides": {"annotations": {"a/b": "x" * 1000}}}))
    assert 1000 <= large[SIZE] - small[SIZE] < 1100


def read_resource_of(spec: dict[str, Any]) -> dict[str, Any]:
    body = a_run_body(**spec)
    body["metadata"]["resourceVersion"] = "1"
    return read_resource(json.dumps(body).encode())


def test_a_forged_pod_is_no_larger_than_ours_and_of_its_own_namespace() -> None:
    """Audit: flood"""
    references = [
        {"kind": "TrainingRun", "name": "drive", "uid": str(number), "apiVersion": "x"} for number in range(10_000)
    ]
    labels = {f"mallory/{number}": "x" * 63 for number in range(1_000)} | {
        "lead.dev/role": "train",
        "lead.dev/attempt": "9" * 60,
    }
    volumes = [{"name": str(number), "secret": {"secretName": "s" * 200}} for number in range(1_000)]
    pod = {
        "metadata": {"name": "p", "namespace": "alice", "uid": "u", "resourceVersion": "1", "labels": labels,
                     "ownerReferences": references},
        "spec": {"volumes": volumes},
    }  # fmt: skip
    trimmed = trim_pod(pod)
    assert len(str(trimmed)) < 10_000
    informers = Informers(cast(KubeClient, SimpleNamespace()), ("",), SETTINGS, lambda key: None, lambda key: None)
    informers.of(POD, "alice").note_own_write(pod)
    assert [p["metadata"]["name"] for p in informers.of(POD, "alice").owned_by("alice", "0")] == ["p"]
    assert informers.of(POD, "bob").owned_by("bob", "0") == []
