"""What the API server refuses before the operator ever sees it, and in which words."""

import json
from typing import Any

import pytest

from lead_testing.api_bench import Bench
from lead_testing.local_cluster.control_plane import ControlPlane
from lead_testing.local_cluster.errors import StepFailed
from lead_testing.manifests import a_dataset_cache, a_training_run

VOLCANO = {"scheduling.k8s.io/group-name": "gang"}
SIMULATOR = {"image": "registry.invalid/carla:1", "command": ["drive"]}
COSCHEDULING = {  # of its versions, newest first
    "scheduling.x-k8s.io/pod-group": "gang",
    "pod-group.scheduling.sigs.k8s.io": "gang",
    "pod-group.scheduling.sigs.k8s.io/name": "gang",
    "pod-group.scheduling.sigs.k8s.io/min-available": "4",
}


def _in_stages(*stages: dict[str, Any]) -> dict[str, Any]:
    return a_dataset_cache("x", "datasets/x", build={"stages": [*stages]})


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("unknown field", a_training_run("x", "c", hostNetwork=True), 'unknown field "spec.hostNetwork"'),
    ("misspelt field", a_training_run("x", "c", node=2), 'unknown field "spec.node"'),
    ("wrong type", a_training_run("x", "c", nodes="two"), "spec.nodes"),
    ("no node", a_training_run("x", "c", nodes=0), "spec.nodes"),
    ("too many nodes", a_training_run("x", "c", nodes=257), "spec.nodes"),
    ("no dataset", a_training_run("x", "c", datasets=[]), "spec.datasets"),
    ("a stage from nowhere", a_training_run("x", "c", stages=[{"name": "a", "initFrom": {"stage": "b"}}]), "initFrom"),
    (
        "two beginnings of a stage",
        a_training_run(
            "x",
            "c",
            stages=[{"name": "a"}, {"name": "b", "initFrom": {"stage": "a", "uri": "s3://lead/runs/n/u/a-s0/"}}],
        ),
        "exactly one of stage and uri",
    ),
    ("a beginning that is no address", a_training_run("x", "c", checkpoint={"from": "file:///etc"}), "checkpoint.from"),
    (
        "a first stage that begins twice",
        a_training_run(
            "x",
            "c",
            checkpoint={"from": "s3://lead/runs/n/u/a-s0/"},
            stages=[{"name": "a", "initFrom": {"uri": "s3://lead/runs/n/u/a-s0/"}}],
        ),
        "keep one of them",
    ),
    (
        "an evaluation of nothing",
        a_training_run("x", "c", stages=[{"name": "a"}, {"name": "b", "kind": "Evaluation"}]),
        "give it initFrom",
    ),
    (
        "an evaluation with epochs of its own",
        a_training_run(
            "x",
            "c",
            stages=[{"name": "a"}, {"name": "b", "kind": "Evaluation", "initFrom": {"stage": "a"}, "epochs": 3}],
        ),
        "remove epochs and seeds",
    ),
    (
        "a stage that begins with a report",
        a_training_run(
            "x",
            "c",
            stages=[
                {"name": "a"},
                {"name": "b", "kind": "Evaluation", "initFrom": {"stage": "a"}},
                {"name": "c", "initFrom": {"stage": "b"}},
            ],
        ),
        "name the stage that it measures",
    ),
    (
        "a closed loop of a stage that is none",
        a_training_run("x", "c", stages=[{"name": "a"}], closedLoop={**SIMULATOR, "stages": ["a", "b"]}),
        "closedLoop.stages names what is no stage of kind Train in spec.stages; correct the name",
    ),
    (
        "a closed loop of a stage that evaluates",
        a_training_run(
            "x",
            "c",
            stages=[{"name": "a"}, {"name": "b", "kind": "Evaluation", "initFrom": {"stage": "a"}}],
            closedLoop={**SIMULATOR, "stages": ["b"]},
        ),
        "closedLoop.stages names what is no stage of kind Train in spec.stages; correct the name",
    ),
    (
        "a closed loop of a stage twice",
        a_training_run("x", "c", stages=[{"name": "a"}], closedLoop={**SIMULATOR, "stages": ["a", "a"]}),
        "Duplicate value",
    ),
    ("nothing at once", a_training_run("x", "c", parallelism=0), "spec.parallelism"),
    (
        "claims shared by seeds",
        a_training_run("x", "c", parallelism=2, sessionCache={"medium": "PersistentVolume"}),
        "set sessionCache.medium to EmptyDir",
    ),
    (
        "a code that means another attempt",
        a_training_run("x", "c", failurePolicy={"fatalExitCodes": [3, 75]}),
        "75 and 79 to 82 mean that another attempt can go on; remove them",
    ),
    ("a code twice", a_training_run("x", "c", failurePolicy={"fatalExitCodes": [3, 3]}), "Duplicate value: 3"),
    ("a code that is none", a_training_run("x", "c", failurePolicy={"fatalExitCodes": [0]}), "fatalExitCodes[0]"),
    (
        "a label of ours",
        a_training_run("x", "c", podOverrides={"labels": {"lead.dev/run": "other"}}),
        "use a prefix of your own",
    ),
    (
        "an annotation of Kubernetes beside that of a gang",
        a_training_run("x", "c", podOverrides={"annotations": {**VOLCANO, "scheduling.k8s.io/group": "gang"}}),
        "save those that name a PodGroup; use a prefix of your own",
    ),
    ("a cache of no size", a_training_run("x", "c", sessionCache={"sizeLimit": "0.0Gi"}), "set a size above 0"),
    ("a cache of less than no size", a_training_run("x", "c", sessionCache={"sizeLimit": -1}), "sizeLimit"),
    ("neither kept nor deleted", a_dataset_cache("x", "p", retain="Perhaps"), "spec.retain"),
    ("two sources", a_dataset_cache("x", "p", source={"prefix": "p", "claimName": "c"}), "spec.source"),
    ("two stages of one name", _in_stages({"name": "a"}, {"name": "a"}), "give each stage its own name"),
    (
        "stages in a circle",
        _in_stages({"name": "a", "after": ["b"]}, {"name": "b", "after": ["a"]}),
        "after names only stages that stand before its own",
    ),
    ("a stage after itself", _in_stages({"name": "a", "after": ["a"]}), "after names only stages that stand before"),
    (
        "a stage after none that is there",
        _in_stages({"name": "a"}, {"name": "b", "after": ["c"]}),
        "after names only stages that stand before its own",
    ),
    ("the stage that every build has", _in_stages({"name": "merge"}), "merge is the last stage"),
    ("too many stages", _in_stages(*({"name": f"s{number}"} for number in range(8))), "spec.build.stages"),
    ("too many workers", _in_stages({"name": "a", "workers": 65}), "spec.build.stages[0].workers"),
    ("no workers", _in_stages({"name": "a", "workers": 0}), "spec.build.stages[0].workers"),
    ("a prefix that climbs", a_dataset_cache("x", "../secrets"), "spec.source.prefix"),
]


@pytest.mark.parametrize(("manifest", "named"), [pytest.param(m, n, id=i) for i, m, n in REFUSED])
def test_a_wrong_manifest_is_refused_with_the_fields_name(
    control_plane: ControlPlane, manifest: dict[str, Any], named: str
) -> None:
    with pytest.raises(StepFailed) as refused:
        control_plane.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(manifest))
    assert named in str(refused.value)


def test_the_keys_by_which_schedulers_know_a_gang_are_taken(control_plane: ControlPlane) -> None:
    asked = a_training_run("x", "c", podOverrides={"annotations": VOLCANO, "labels": COSCHEDULING})
    made = control_plane.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(asked))
    assert json.loads(made)["spec"]["podOverrides"] == {
        **asked["spec"]["podOverrides"], "nodeSelector": {}, "tolerations": [],
    }  # fmt: skip


def test_a_fixed_field_says_that_it_is_fixed(bench: Bench) -> None:
    bench.apply(a_training_run("drive", "town"))
    with pytest.raises(
        StepFailed,
        match=r"fixed after creation; create a new run \(checkpoint\.from .* kubectl replace --force",
    ):
        bench.kubectl("patch", "trun", "drive", "--type=merge", "-p", '{"spec":{"procsPerNode":3}}')
    bench.kubectl("patch", "trun", "drive", "--type=merge", "-p", '{"spec":{"suspend":true}}')
