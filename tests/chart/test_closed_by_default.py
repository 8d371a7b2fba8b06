"""What the chart keeps apart: release and runs, one namespace and another, runs and the rest of the cluster."""

import json
from typing import Any

import pytest
import yaml

from lead_operator.policy import Policy, read_policy
from lead_testing import PROJECT_ROOT

CHART = str(PROJECT_ROOT / "charts/lead")
Objects = list[dict[str, Any]]


def of_kind(objects: Objects, kind: str) -> Objects:
    return [each for each in objects if each["kind"] == kind]


def policy_of(objects: Objects) -> Policy:
    (deployment,) = of_kind(objects, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return read_policy({each["name"]: each.get("value", "") for each in container["env"]}["LEAD_POLICY"])


def profiles_of(objects: Objects) -> dict[str, Any]:
    (found,) = [each for each in of_kind(objects, "ConfigMap") if "profiles.json" in each["data"]]
    document: dict[str, Any] = json.loads(found["data"]["profiles.json"])
    return document


def test_the_charts_closed_lists_are_those_that_the_operator_takes_without_a_chart(render: Any) -> None:
    """Whoever starts the operator without a policy has the lists that the chart ships.

    Audit: S-4
    """
    found = policy_of(render())
    assert found.reserved_claims == ("data-lead-minio-*",)
    assert found == Policy(reserved_claims=found.reserved_claims)
    nobodys = {"iam.amazonaws.com/role", "k8s.v1.cni.cncf.io/networks", "sidecar.istio.io/inject", "app", "*"}
    assert not nobodys & {*found.allowed_labels, *found.allowed_annotations}
    assert not any(each.startswith("kueue.") for each in (*found.allowed_labels, *found.allowed_annotations))
    assert found.allowed_priority_classes == found.allowed_storage_classes == ()


@pytest.mark.parametrize(
    "settings",
    ["runs.namespaces={lead-system,team-a}", "runs.clusterWide=true", "runs.namespaces={team-a},runs.clusterWide=true"],
)
def test_runs_of_several_namespaces_are_kept_out_of_the_releases_own(helm: Any, render: Any, settings: str) -> None:
    """With more than one namespace for runs the one that holds root's password and the operator's key is none of them.

    Audit: S-1
    """
    place = ("--namespace", "lead-system", "--kube-version", "1.34.4")
    done = helm("template", "lead", CHART, *place, "--set", settings)
    if "team-a},runs.clusterWide" in settings:
        assert done.returncode == 0, done.stderr
        assert policy_of(render("defaults", "--set", settings)).refused_namespaces == ("lead-system",)
    else:
        assert done.returncode != 0
        assert "lead-system is the release's own" in done.stderr and "runs.allowInReleaseNamespace" in done.stderr
    asked = f"{settings},runs.allowInReleaseNamespace=true"
    assert policy_of(render("defaults", "--set", asked)).refused_namespaces == ()


def test_raw_data_are_shared_by_default_where_one_namespace_holds_all_runs(render: Any) -> None:
    """Audit: S-6"""
    assert profiles_of(render())["default"]["shared"] == ["datasets/", "weights/"]
    assert profiles_of(render("cluster_wide"))["default"]["shared"] == []
    several = ("--set", "runs.namespaces={team-a,team-b},storage.profiles.default.shared={datasets/common}")
    assert profiles_of(render("defaults", *several))["default"]["shared"] == ["datasets/common/"]


def test_what_is_said_to_the_one_trusted_user_and_what_separates_them(notes: Any) -> None:
    """The first two commands stay; the notes say whom they are for, and which two commands isolate the users.

    Audit: S-1
    """
    assert "for ONE trusted user" in notes() and "runs.namespaces=" in notes()
    assert "for ONE trusted user" not in notes("everything")


def test_the_notes_say_where_the_data_of_several_namespaces_go(notes: Any) -> None:
    assert "below datasets/<name>/ (or" in notes() and "datasets/<namespace>/" not in notes()
    several = notes("defaults", "--set", "runs.namespaces={team-a,team-b}")
    assert "Each namespace reads its own data: upload datasets to datasets/<namespace>/<name>/" in several
    assert "below datasets/team-a/<name>/ (or" in several


def test_the_command_after_the_example_data_reads_where_they_were_put(notes: Any) -> None:
    data = ["--set", "exampleData.enabled=true"]
    assert "  kubectl -n lead-system apply -f crds/examples/lead-demo.yaml" in notes("defaults", *data)
    several = ["--set", "runs.namespaces={team-a,team-b},exampleData.prefix=datasets/team-a/carla_demo"]
    told = notes("defaults", *data, *several)
    assert (
        "'s#datasets/carla_demo#datasets/team-a/carla_demo#' crds/examples/lead-demo.yaml | kubectl -n team-a apply"
        in told
    )
    assert "prefix: datasets/carla_demo\n" in (PROJECT_ROOT / "crds/examples/lead-demo.yaml").read_text()


def test_who_reads_the_curves_where_no_policy_is_enforced_is_said(notes: Any) -> None:
    """TensorBoard has no authentication. Audit: S18"""
    asked = ("--set", "tensorboard.enabled=true")
    assert "TensorBoard" not in notes()
    assert "does not enforce them, every pod of the cluster can read its curves" in notes("defaults", *asked)
    closed = notes("defaults", *asked, "--set", "networkPolicy.enabled=false")
    assert "networkPolicy.enabled is false" in closed


def test_a_namespace_takes_no_more_of_the_cluster_than_its_quota(render: Any) -> None:
    """Audit: S19"""
    objects = render("everything")
    for kind, bound in (("ResourceQuota", "hard"), ("LimitRange", "limits")):
        found = of_kind(objects, kind)
        assert {each["metadata"]["namespace"] for each in found} == {"team-a", "team-b"}
        assert all(each["spec"][bound] for each in found)
    assert of_kind(render(), "ResourceQuota") == of_kind(render(), "LimitRange") == []


def test_a_store_outside_is_reached_at_its_addresses_alone_or_the_notes_say_that_all_are_open(
    render: Any, notes: Any
) -> None:
    """Audit: minor-netpol"""
    cidrs = {"198.51.100.0/24", "2001:db8::/32"}
    for policy in of_kind(render("everything"), "NetworkPolicy"):
        peers = [peer["ipBlock"]["cidr"] for rule in policy["spec"].get("egress", []) for peer in rule.get("to", [])
                 if "ipBlock" in peer]  # fmt: skip
        if policy["metadata"]["name"] in ("lead-runs", "lead-operator"):
            assert set(peers) == cidrs | {"192.0.2.7/32"}
    assert "networkPolicy.storeCidrs" not in notes("everything")
    open_to_all = notes("external_store")
    assert "WARNING: pods of runs and the operator can connect to every address on port 8443" in open_to_all
    assert "networkPolicy.storeCidrs" in open_to_all


def test_an_older_api_server_gets_no_admission_policies(helm: Any) -> None:
    for version, made in (("1.29.0", False), ("1.30.0", True)):
        done = helm("template", "lead", CHART, "--kube-version", version)
        assert done.returncode == 0, done.stderr
        kinds = {each["kind"] for each in yaml.safe_load_all(done.stdout) if each}
        assert ("ValidatingAdmissionPolicy" in kinds) is made


def test_the_metrics_are_for_the_accounts_that_the_values_name(render: Any) -> None:
    """Audit: minor-metrics"""
    objects = render("everything")
    (role,) = [each for each in of_kind(objects, "ClusterRole") if "metrics-reader" in each["metadata"]["name"]]
    assert role["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    (bound,) = [
        each for each in of_kind(objects, "ClusterRoleBinding") if each["roleRef"]["name"] == role["metadata"]["name"]
    ]
    assert bound["subjects"] == [{"kind": "ServiceAccount", "namespace": "monitoring", "name": "prometheus-k8s"}]
    assert "prometheus.io/scrape" not in json.dumps(of_kind(objects, "Deployment"))
    assert "prometheus.io/scrape" in json.dumps(of_kind(render("external_store"), "Deployment"))
