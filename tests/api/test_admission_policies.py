"""The chart's ValidatingAdmissionPolicies on a real API server: what they refuse and say, and what they let by."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lead_testing import PROJECT_ROOT
from lead_testing.charts import rendered
from lead_testing.local_cluster.control_plane import ControlPlane
from lead_testing.local_cluster.errors import StepFailed
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import wait_for
from lead_testing.policy_cases import (
    ANOTHER_TEAMS,
    REFUSED_CACHES,
    REFUSED_LOOPS,
    REFUSED_RUNS,
    RESERVED,
    STORES_CLAIM,
    SYSTEM_PRIORITY,
    Refused,
)

RELEASE, TEAM, OTHER, ALONE = "lead-system", "team-a", "team-b", "alone"
OPERATOR = f"system:serviceaccount:{RELEASE}:lead-operator"
EXAMPLES = sorted((PROJECT_ROOT / "crds/examples").glob("*.yaml"))
MANAGED = {"app.kubernetes.io/managed-by": "lead-operator", "app.kubernetes.io/name": "lead", "lead.dev/rank": "0"}
SEVERAL = {
    "runs__namespaces": json.dumps([TEAM, OTHER]),
    "admissionPolicies__imagesByDigest": "true",
    "images__trainer__tag": json.dumps("1@sha256:" + "0" * 64),
    "policy__allowedImages": '["docker.io/lead/*"]',
}


def create(plane: ControlPlane, body: dict[str, Any], namespace: str = TEAM, *options: str) -> str:
    """Returns what the API server says against an object; empty where it would take it."""
    command = ("-n", namespace, "create", "--dry-run=server", "-f", "-", *options)
    try:
        plane.kubectl(*command, stdin=json.dumps(body))
    except StepFailed as refused:
        return str(refused)
    return ""


def a_pod(labels: dict[str, str], image: str = "registry.invalid/t@sha256:" + "0" * 64) -> dict[str, Any]:
    spec = {"containers": [{"name": "lead", "image": image}], "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "forged", "labels": labels}, "spec": spec}


def install(plane: ControlPlane, namespace: str, **values: str) -> None:
    """Applies the policies of a release `lead` in one namespace, with the operator's account and rights."""
    parts = ("admission/", "operator/rbac.yaml", "operator/serviceaccount.yaml")
    items = rendered(*parts, namespace=namespace, **values)
    plane.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


@pytest.fixture(scope="module")
def guarded(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """An API server with the policies of two releases: one with two namespaces for runs, one with its own alone."""
    for namespace in (RELEASE, TEAM, OTHER, ALONE):
        control_plane.kubectl("create", "namespace", namespace)
    install(control_plane, RELEASE, **SEVERAL)
    install(control_plane, ALONE, policy__allowedImages='["registry.example.com/carla/*"]')
    for namespace in (TEAM, OTHER, ALONE):
        forged = a_pod(MANAGED)
        wait_for(
            f"the policies of {namespace}", lambda n=namespace, f=forged: "were set by" in create(control_plane, f, n)
        )
        for kind in (a_training_run("x", "c", nodes=65), a_dataset_cache("x", "raw/town")):
            wait_for("the other policies", lambda n=namespace, k=kind: "allowed is" in create(control_plane, k, n))
    yield control_plane
    kinds = "validatingadmissionpolicies,validatingadmissionpolicybindings"
    control_plane.kubectl("delete", kinds, "--all")
    control_plane.kubectl("delete", "namespace", RELEASE, TEAM, OTHER, ALONE, "--wait=false")


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in (*REFUSED_RUNS, *REFUSED_CACHES)])
def test_what_no_list_holds_is_refused_at_admission_with_what_to_set(guarded: ControlPlane, case: Refused) -> None:
    """The API server itself refuses a spec beyond the lists, before anything is kept of it.

    Audit: S-4
    """
    said = create(guarded, case.manifest)
    for word in (case.field, case.found, "allowed is", f"an administrator sets {case.remedy} in the chart's values"):
        assert word in said


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in REFUSED_LOOPS])
def test_a_closed_loop_beyond_the_lists_is_refused_when_it_is_made_and_when_it_is_changed(
    guarded: ControlPlane, case: Refused
) -> None:
    said = create(guarded, case.manifest)
    for word in (case.field, case.found, "allowed is", case.remedy):
        assert word in said
    name = f"loop-{case.id.replace(' ', '-').lower()}"
    plain = a_training_run(name, "c")
    guarded.kubectl("-n", TEAM, "create", "-f", "-", stdin=json.dumps(plain))
    patch = json.dumps({"spec": {"closedLoop": case.manifest["spec"]["closedLoop"]}})
    with pytest.raises(StepFailed, match="allowed is"):
        guarded.kubectl("-n", TEAM, "patch", "trun", name, "--type=merge", "--dry-run=server", "-p", patch)
    guarded.kubectl("-n", TEAM, "delete", "trun", name)


def test_a_closed_loop_within_the_lists_is_taken(guarded: ControlPlane) -> None:
    routes = {"prefix": f"weights/{ALONE}/routes"}
    loop = {"image": "registry.example.com/carla/lead:1", "command": ["drive"], "routes": routes}
    assert create(guarded, a_training_run("x", "c", closedLoop=loop), ALONE) == ""


def test_a_class_of_the_clusters_own_pods_is_refused(guarded: ControlPlane) -> None:
    """Audit: S-4"""
    said = create(guarded, SYSTEM_PRIORITY)
    assert "spec.scheduling.priorityClassName" in said and "the cluster's own pods; name another" in said


@pytest.mark.parametrize("manifest", RESERVED, ids=lambda each: each["spec"]["source"]["prefix"])
def test_what_pods_and_operator_write_is_refused_as_a_source(guarded: ControlPlane, manifest: dict[str, Any]) -> None:
    """Audit: S-6, S8"""
    for namespace in (TEAM, ALONE):
        said = create(guarded, manifest, namespace)
        assert "source.prefix" in said and manifest["spec"]["source"]["prefix"] in said and "never a source" in said


def test_a_namespace_reads_its_own_raw_data(guarded: ControlPlane) -> None:
    """With several namespaces for runs each reads its own folder, and with one its people own all data.

    Audit: S-6
    """
    said = create(guarded, ANOTHER_TEAMS)
    assert (
        "spec.source.prefix is datasets/team-b/town, allowed is below datasets/team-a/; upload the data there" in said
    )
    assert "storage.profiles.default.shared" in said
    assert create(guarded, a_dataset_cache("x", "datasets/team-a/town")) == ""
    assert create(guarded, ANOTHER_TEAMS, OTHER) == ""
    assert create(guarded, ANOTHER_TEAMS, ALONE) == ""
    assert "allowed is below datasets/alone/, datasets/" in create(guarded, a_dataset_cache("x", "raw/town"), ALONE)


def test_the_stores_volume_is_no_source_in_either_mode(guarded: ControlPlane) -> None:
    """Audit: S-1"""
    for namespace in (TEAM, ALONE):
        said = create(guarded, STORES_CLAIM, namespace)
        assert "spec.source.claimName is data-lead-minio-0, allowed is no claim of the embedded object store" in said
        own = a_dataset_cache("x", "", source={"claimName": "lead-source-town"})
        assert create(guarded, own, namespace) == ""


def test_the_account_of_a_run_reaches_neither_keys_nor_the_lease_in_either_mode(guarded: ControlPlane) -> None:
    """What training pods are to the API server may read no Secret and take no lease, beside the operator or apart.

    Audit: S-1
    """
    for namespace, release in ((ALONE, ALONE), (TEAM, RELEASE)):
        for verb, resource in (("get", "secrets"), ("list", "secrets"), ("get", "leases.coordination.k8s.io"),
                               ("update", "leases.coordination.k8s.io"), ("create", "pods"),
                               ("create", "serviceaccounts/token"), ("get", "persistentvolumeclaims")):  # fmt: skip
            account = f"--as=system:serviceaccount:{namespace}:lead-run"
            with pytest.raises(StepFailed, match="no"):
                guarded.kubectl("-n", release, "auth", "can-i", verb, resource, account)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_admitted_as_the_readme_applies_it(guarded: ControlPlane, example: Path) -> None:
    for document in yaml.safe_load_all(example.read_text()):
        assert create(guarded, document, ALONE) == ""


def test_a_forged_rank_is_refused_and_the_operators_pods_are_not(guarded: ControlPlane) -> None:
    """Nobody but the operator's account makes a pod that counts as a rank, or relabels one.

    Audit: S18
    """
    said = create(guarded, a_pod(MANAGED))
    assert "metadata.labels of a pod of the operator (app.kubernetes.io/managed-by: lead-operator) were set by" in said
    assert f"expected {OPERATOR} alone; create a TrainingRun or a DatasetCache instead" in said
    assert create(guarded, a_pod({"app": "mine"})) == ""
    for what, forged in (("service", a_service(MANAGED)), ("persistentvolumeclaim", a_claim(MANAGED))):
        assert f"metadata.labels of a {what} of the operator" in create(guarded, forged)
        assert create(guarded, {**forged, "metadata": {"name": "mine"}}) == ""
        assert create(guarded, forged, TEAM, f"--as={OPERATOR}") == ""
    as_operator = (f"--as={OPERATOR}", "--as-group=system:serviceaccounts", "--as-group=system:authenticated")
    assert create(guarded, a_pod(MANAGED), TEAM, *as_operator) == ""
    guarded.kubectl("-n", TEAM, "create", "-f", "-", *as_operator, stdin=json.dumps(a_pod(MANAGED)))
    try:
        for change, taken in (
            ("lead.dev/rank=1", False),
            ("app.kubernetes.io/managed-by-", False),
            ("kueue.x-k8s.io/managed=true", True),
        ):
            command = ("-n", TEAM, "label", "pod", "forged", "--overwrite", "--dry-run=server", change)
            if taken:
                guarded.kubectl(*command)
                continue
            with pytest.raises(StepFailed, match="were set by"):
                guarded.kubectl(*command)
    finally:
        guarded.kubectl("-n", TEAM, "delete", "pod", "forged", "--grace-period=0", "--force")


def test_an_image_without_a_digest_is_refused_where_digests_are_asked_for(guarded: ControlPlane) -> None:
    """Audit: S3"""
    as_operator = (f"--as={OPERATOR}",)
    said = create(guarded, a_pod(MANAGED, "registry.invalid/t:1"), TEAM, *as_operator)
    assert "an image of spec.containers is registry.invalid/t:1, expected one by digest" in said
    assert "admissionPolicies.imagesByDigest" in said
    its_own = f"--as=system:serviceaccount:{ALONE}:lead-operator"
    assert create(guarded, a_pod(MANAGED, "registry.invalid/t:1"), ALONE, its_own) == ""


def test_the_operators_right_to_patch_caches_changes_no_spec(guarded: ControlPlane) -> None:
    """The operator's account may set its finalizer on a DatasetCache, and neither spec nor other metadata.

    Audit: S16
    """
    cache = a_dataset_cache("town", "datasets/team-a/town", retain="Delete")
    guarded.kubectl("-n", TEAM, "create", "-f", "-", stdin=json.dumps(cache))

    def patch(body: dict[str, Any]) -> None:
        command = ("-n", TEAM, "patch", "dsc", "town", "--type=merge", "--dry-run=server", f"--as={OPERATOR}")
        guarded.kubectl(*command, "-p", json.dumps(body))

    wait_for("the operator's rights", lambda: _succeeds(patch, {"metadata": {"finalizers": ["lead.dev/cache-data"]}}))
    for spec in ({"retain": "Retain"}, {"config": {"x": 1}}, {"source": {"prefix": "datasets/team-a/other"}}):
        with pytest.raises(StepFailed, match="spec of datasetcaches town is another than it was, expected unchanged"):
            patch({"spec": spec})
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "1"}]
    for metadata in ({"labels": {"a": "b"}}, {"annotations": {"a": "b"}}, {"finalizers": ["a.b/c"]},
                     {"ownerReferences": owners}):  # fmt: skip
        with pytest.raises(StepFailed, match="expected unchanged but for the finalizer"):
            patch({"metadata": metadata})
    guarded.kubectl("-n", TEAM, "delete", "dsc", "town")


def _succeeds(call: Any, body: dict[str, Any]) -> bool:
    try:
        call(body)
    except StepFailed:
        return False
    return True


def test_a_config_beyond_bounds_is_refused_whether_large_or_deep(guarded: ControlPlane) -> None:
    """Neither a large configuration nor hundreds of levels get past the API server.

    Audit: S-2
    """
    for manifest in (
        a_training_run("x", "c", config={"a": "b" * 70_000}),
        a_training_run("x", "c", stages=[{"name": "a", "config": {"a": "b" * 70_000}}]),
        a_dataset_cache("x", "datasets/team-a/x", config={"a": "b" * 70_000}),
        a_training_run("x", "c", config={"a": "\N{RACING CAR}" * 17_500}),  # bytes count, as for the operator
    ):
        said = create(guarded, manifest)
        assert "spec.config is 70" in said and "allowed is at most 65536" in said
        assert "admissionPolicies.config.maxBytes" in said
    for config, named in (
        ({"a": [[]] * 300}, "mappings and lists"),
        (nested(300), "mappings and lists"),
        (nested(900), "mappings and lists"),
    ):
        for manifest in (
            a_training_run("x", "c", config=config),
            a_dataset_cache("x", "datasets/team-a/x", config=config),
        ):
            said = create(guarded, manifest)
            assert said and named in said, said[:300]
    whole = {"model": {"layers": [{"width": 256, "heads": 8} for _ in range(100)]}, "classes": ["car"] * 1000}
    assert create(guarded, a_training_run("x", "c", config=whole)) == ""


def a_service(labels: dict[str, str]) -> dict[str, Any]:
    """Returns a Service by which somebody would be the ranks of a run."""
    spec = {"clusterIP": "None", "selector": {"app": "mine"}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "forged", "labels": labels}, "spec": spec}


def a_claim(labels: dict[str, str]) -> dict[str, Any]:
    """Returns a claim that a run would take for a session cache."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": "forged", "labels": labels}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def nested(levels: int) -> dict[str, Any]:
    """Returns mappings in one another."""
    config: dict[str, Any] = {}
    for _ in range(levels):
        config = {"a": config}
    return config


def test_a_list_that_is_tightened_lets_what_exists_be_changed_elsewhere(guarded: ControlPlane) -> None:
    """A run or cache that is older than a list can still be suspended, kept, labelled and deleted."""
    install(guarded, RELEASE, **SEVERAL, policy__allowedNodeSelectors='["disk"]')
    asked = a_dataset_cache("old", "datasets/team-a/x", build={"nodeSelector": {"disk": "ssd"}})
    run = a_training_run("old", "c", podOverrides={"nodeSelector": {"disk": "ssd"}})
    wait_for("the longer list", lambda: not create(guarded, asked) and not create(guarded, run))
    for body in (asked, run):
        guarded.kubectl("-n", TEAM, "create", "-f", "-", stdin=json.dumps(body))
    install(guarded, RELEASE, **SEVERAL)
    wait_for("the shorter list", lambda: create(guarded, a_dataset_cache("new", "datasets/team-a/x",
             build={"nodeSelector": {"disk": "ssd"}})))  # fmt: skip
    patch = ("-n", TEAM, "patch", "--type=merge", "--dry-run=server", "-p")
    guarded.kubectl(*patch, '{"spec":{"suspend":true}}', "trun", "old")
    guarded.kubectl(*patch, '{"spec":{"retain":"Delete"}}', "dsc", "old")
    guarded.kubectl(*patch, '{"metadata":{"labels":{"a":"b"}}}', "dsc", "old")
    with pytest.raises(StepFailed, match=r"a key of spec\.build\.nodeSelector is disk"):
        guarded.kubectl(*patch, '{"spec":{"build":{"parallelism":3}}}', "dsc", "old")
    guarded.kubectl("-n", TEAM, "delete", "trun/old", "dsc/old")


def test_cluster_wide_the_operators_own_namespace_takes_no_runs(guarded: ControlPlane) -> None:
    """With runs in every namespace, the one that holds the operator's key and the store is left out.

    Audit: S-1
    """
    install(guarded, RELEASE, runs__namespaces=json.dumps([TEAM]), runs__clusterWide="true")
    run, cache = a_training_run("x", "c"), a_dataset_cache("x", f"datasets/{RELEASE}/x")
    for body in (run, cache):
        wait_for("the release's namespace to be closed", lambda b=body: create(guarded, b, RELEASE))
        said = create(guarded, body, RELEASE)
        assert f"metadata.namespace is {RELEASE}, allowed is any namespace for runs" in said
        assert "runs.allowInReleaseNamespace" in said
    assert create(guarded, run, OTHER) == create(guarded, run, "default") == ""
    install(guarded, RELEASE, **SEVERAL)
