"""A spec may ask for what the administrator's lists hold: all else is told with field, found, allowed and value."""

from dataclasses import replace
from typing import Any

import pytest

from lead_operator.cli.store_policies import Tenant, build_statements
from lead_operator.decisions.dataset_cache.plan import decide_dataset_cache
from lead_operator.decisions.observed import ObservedBuild, ObservedRun
from lead_operator.decisions.policy_check import source_is_allowed
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_operator.errors import SettingsError
from lead_operator.kube.observe import source_claim_owner
from lead_operator.policy import Policy, admits, read_policy
from lead_operator.resources.crd_defaults import fill_defaults
from lead_operator.resources.dataset_cache import parse_dataset_cache
from lead_operator.resources.training_run import parse_training_run
from lead_operator.settings import Settings
from lead_protocol.object_keys import RESERVED_PREFIXES
from lead_testing.makers import NOW, PROFILE, SETTINGS, a_cache_body, a_pod, a_ready_cache, a_run_body
from lead_testing.policy_cases import (
    ANOTHER_TEAMS,
    REFUSED_CACHES,
    REFUSED_RUNS,
    RESERVED,
    STORES_CLAIM,
    SYSTEM_PRIORITY,
    Refused,
)

SHIPPED = replace(SETTINGS, policy=Policy())
SEVERAL = replace(SHIPPED, storage_profiles={"default": replace(PROFILE, shared=("datasets/common/", "weights/"))})
WITH_STORE = replace(SHIPPED, policy=Policy(allowed_claims=("*",), reserved_claims=("data-lead-minio-*",)))


def accepted(status: dict[str, Any]) -> dict[str, Any]:
    return next(each for each in status["conditions"] if each["type"] == "Accepted")


def body_of(manifest: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    filled = fill_defaults({**manifest, "metadata": {**base["metadata"], "name": "x"}})
    return {**filled, "metadata": {**base["metadata"], "name": "x"}}


def read_run(manifest: dict[str, Any], settings: Settings = SHIPPED, **observed: Any) -> Any:
    run = parse_training_run(body_of(manifest, a_run_body()))
    seen: dict[str, Any] = {"caches": (a_ready_cache("town"), a_ready_cache()), "service_exists": True} | observed
    return decide_training_run(run, ObservedRun(now=NOW, **seen), settings)


def look_at_cache(manifest: dict[str, Any], settings: Settings = SHIPPED, **observed: Any) -> Any:
    cache = parse_dataset_cache(body_of(manifest, a_cache_body()))
    return decide_dataset_cache(cache, ObservedBuild(now=NOW, **observed), settings)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in REFUSED_RUNS])
def test_a_run_that_asks_for_more_waits_with_field_found_allowed_and_what_to_set(case: Refused) -> None:
    """`podOverrides`, scheduling, storage and devices are closed lists.

    Audit: S-4
    """
    plan = read_run(case.manifest)
    told = accepted(plan.status)
    assert (told["status"], told["reason"]) == ("False", "NotAllowed")
    assert (plan.status["phase"], plan.creates, plan.claim_attempt) == ("Pending", (), False)
    for word in (case.field, case.found, "allowed is", f"an administrator sets {case.remedy} in the chart's values"):
        assert word in told["message"]
    assert read_run(case.manifest, SETTINGS).claim_attempt, "with that value the same run begins"


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in REFUSED_CACHES])
def test_a_cache_that_asks_for_more_waits_likewise(case: Refused) -> None:
    """The same lists bound the pods of builds, and the claims they may mount.

    Audit: S-4
    """
    plan = look_at_cache(case.manifest)
    told = accepted(plan.status)
    assert (told["status"], told["reason"], plan.creates) == ("False", "NotAllowed", ())
    for word in (case.field, case.found, "allowed is", f"an administrator sets {case.remedy} in the chart's values"):
        assert word in told["message"]
    assert look_at_cache(case.manifest, SETTINGS).claim_attempt


def test_a_class_of_the_clusters_own_pods_is_refused_whatever_the_lists_say() -> None:
    """Audit: S-4"""
    told = accepted(read_run(SYSTEM_PRIORITY, SETTINGS).status)
    assert told["reason"] == "NotAllowed"
    assert "spec.scheduling.priorityClassName is 'system-node-critical'" in told["message"]
    with pytest.raises(SettingsError, match=r"system-\* is never allowed"):
        read_policy('{"allowedPriorityClasses": ["system-cluster-critical"]}')


def test_a_list_that_is_tightened_ends_nothing_that_has_begun() -> None:
    """An upgrade with shorter lists neither stops nor restarts a live run, which says what a new one would hear."""
    (case,) = [each for each in REFUSED_RUNS if each.id == "a node's label"]
    pods = tuple(replace(a_pod(rank, stage="pretrain"), name=f"x-pretrain-s0-a1-{rank}") for rank in (0, 1))
    begun = read_run(case.manifest, SETTINGS)
    on = read_run(case.manifest, SHIPPED, pods=pods, previous=begun.status)
    assert (on.status["phase"], on.deletes) == ("Starting", ())
    assert accepted(on.status)["status"] == "True"
    assert "it goes on, but would be refused as a new run: " in accepted(on.status)["message"]
    lost = tuple(replace(pod, phase="Failed", exit_code=1, finished_at=NOW) for pod in pods)
    again = read_run(case.manifest, SHIPPED, pods=lost, previous=on.status)
    assert again.status["phase"] == "Recovering" and accepted(again.status)["status"] == "True"
    (build,) = [each for each in REFUSED_CACHES if each.id == "a taint for a build"]
    building = look_at_cache(build.manifest, SETTINGS)
    assert look_at_cache(build.manifest, SHIPPED, previous=building.status).status["phase"] == "Building"


@pytest.mark.parametrize("manifest", RESERVED, ids=lambda each: each["spec"]["source"]["prefix"])
def test_what_pods_and_operator_write_is_never_a_source(manifest: dict[str, Any]) -> None:
    """Audit: S-6, S8"""
    open_to_all = replace(SETTINGS, storage_profiles={"default": replace(PROFILE, shared=("datasets/", "weights/"))})
    told = accepted(look_at_cache(manifest, open_to_all).status)
    assert told["reason"] == "NotAllowed"
    assert "is what pods and operator write, and never a source" in told["message"]


def test_a_namespace_reads_its_own_raw_data_and_what_is_shared() -> None:
    """Another namespace's data are refused with the folders that are allowed.

    Audit: S-6
    """
    told = accepted(look_at_cache(ANOTHER_TEAMS, SEVERAL).status)["message"]
    assert "spec.source.prefix is 'datasets/team-b/town', allowed is below datasets/team-a/, datasets/common/" in told
    assert "storage.profiles.default.shared" in told
    for prefix, allowed in {
        "datasets/team-a/town": True, "datasets/team-a": True, "datasets/common/x/": True, "datasets/team-ab/x": False,
        "datasets": False, "datasets/commons": False, "weights/x": False, "town": False,
    }.items():  # fmt: skip
        assert source_is_allowed(prefix, "team-a", ("datasets/common/", "weights/")) is allowed, prefix


@pytest.mark.parametrize(
    ("shared", "alone"), [(("datasets/common/", "weights/"), False), ((), False), (("datasets/", "weights/"), True)]
)
def test_the_operator_refuses_the_sources_that_the_store_would(shared: tuple[str, ...], alone: bool) -> None:
    """The condition that a user reads and the store's policy for build pods agree on every source.

    Audit: S-6
    """
    tenant = Tenant(replace(PROFILE, shared=shared), "team-a", alone)
    statements = [each for each in build_statements(tenant, "lead-build") if "s3:GetObject" in each["Action"]]
    below = "arn:aws:s3:::lead/"
    readable = [each.removeprefix(below).rstrip("*") for found in statements for each in found["Resource"]]
    sources = tuple(each for each in readable if not each.startswith(RESERVED_PREFIXES))
    for prefix in ("datasets/team-a/x", "datasets/team-a", "datasets/team-b/x", "datasets/common/x", "datasets/common",
                   "datasets/commons", "datasets/x", "weights/x", "weights/team-a", "raw", "runs/team-a/x",
                   "caches/team-a/x", "builds/team-a/x", "control/team-a/x"):  # fmt: skip
        assert source_is_allowed(prefix, "team-a", shared) is f"{prefix}/".startswith(sources), prefix


def test_a_claim_of_the_store_or_of_a_run_is_no_source_whatever_its_name() -> None:
    """Neither the embedded store's volume nor a run's session cache can be mounted by a cache.

    Audit: S-1
    """
    for claim, named in (
        ({"app.kubernetes.io/name": "lead", "app.kubernetes.io/component": "minio"}, "a release of this chart"),
        ({"app.kubernetes.io/managed-by": "lead-operator", "lead.dev/run": "night-drive"}, "the run night-drive"),
        ({"app.kubernetes.io/managed-by": "lead-operator", "lead.dev/shared-claim": "towns"}, "runs that share"),
    ):
        owner = source_claim_owner({"metadata": {"labels": claim}})
        told = accepted(look_at_cache(STORES_CLAIM, SETTINGS, source_claim_owner=owner).status)
        assert told["reason"] == "NotAllowed" and f"allowed is no claim of {named}" in told["message"]
    told = accepted(look_at_cache(STORES_CLAIM, WITH_STORE).status)["message"]
    assert "spec.source.claimName is 'data-lead-minio-0', allowed is no claim of the embedded object store" in told
    assert source_claim_owner(None) == source_claim_owner({"metadata": {"labels": {"app": "mine"}}}) == ""


def test_the_releases_own_namespace_is_refused_where_it_is_not_for_runs() -> None:
    """Audit: S-1"""
    own = replace(SETTINGS, policy=replace(SETTINGS.policy, refused_namespaces=("team-a",)))
    for told in (
        accepted(read_run(REFUSED_RUNS[0].manifest, own).status),
        accepted(look_at_cache(RESERVED[0], own).status),
    ):
        assert told["reason"] == "NotAllowed"
        assert "metadata.namespace is 'team-a'" in told["message"]
        assert "runs.allowInReleaseNamespace" in told["message"]


def test_a_profile_serves_the_namespaces_that_it_names() -> None:
    """Audit: S-4"""
    theirs = replace(SETTINGS, storage_profiles={"default": replace(PROFILE, namespaces=("team-b",))})
    told = accepted(read_run(REFUSED_RUNS[0].manifest, theirs).status)["message"]
    assert "spec.storageProfile is 'default', allowed is in team-b alone" in told
    assert "storage.profiles.default.namespaces" in told


def test_an_entry_is_a_name_or_a_beginning() -> None:
    patterns = ("exact", "prefix/*", "lead-source-*")
    for name, admitted in {"exact": True, "exactly": False, "prefix/a": True, "prefix": False, "lead-source-": True,
                           "my-lead-source-a": False}.items():  # fmt: skip
        assert admits(patterns, name) is admitted, name


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[", "not JSON"),
        ('{"allowedLabel": []}', "allowedLabels"),
        ('{"allowedLabels": "*"}', "expected a list of names"),
        ('{"maxNodes": 1.5}', "expected a whole number"),
        ('{"maxNodes": true}', "expected a whole number"),
    ],
)
def test_a_wrong_policy_is_named_at_the_start(text: str, named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        read_policy(text)
    assert read_policy('{"maxNodes": 4.0, "allowedLabels": ["team"]}') == Policy(max_nodes=4, allowed_labels=("team",))
