"""The chart's NetworkPolicies where something enforces them: who reaches whom, and above all who does not."""

import json
from collections.abc import Iterator

import pytest

from lead_testing.charts import rendered
from lead_testing.policy_links import LinkedPod, PodLinks, can_run

RELEASE, TEAM, OTHER = "lead-system", "team-a", "team-b"
OURS = {"app.kubernetes.io/name": "lead", "app.kubernetes.io/managed-by": "lead-operator"}


def of_release(component: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "lead",
        "app.kubernetes.io/instance": "lead",
        "app.kubernetes.io/component": component,
    }


PODS = (
    LinkedPod("operator", "10.80.0.1", RELEASE, of_release("operator"), (8080, 8443)),
    LinkedPod("minio", "10.80.0.2", RELEASE, of_release("minio"), (9000, 9011)),
    LinkedPod("init", "10.80.0.3", RELEASE, of_release("storage-init")),
    LinkedPod("named-lead", "10.80.0.4", RELEASE, {"app.kubernetes.io/name": "lead"}, (80,)),
    LinkedPod("example", "10.80.1.1", TEAM, of_release("example-data")),
    LinkedPod("rank0", "10.80.1.2", TEAM, {**OURS, "lead.dev/rank": "0"}, (29500, 80)),
    LinkedPod("rank1", "10.80.1.3", TEAM, {**OURS, "lead.dev/rank": "1"}),
    LinkedPod("check", "10.80.1.6", TEAM, {**OURS, "lead.dev/role": "check"}, (80,)),
    LinkedPod("driver", "10.80.1.7", TEAM, {**OURS, "lead.dev/role": "closed-loop"}, (80,)),
    LinkedPod("web", "10.80.1.4", TEAM, {"app": "web"}, (80,)),
    LinkedPod("named-in-team", "10.80.1.5", TEAM, {"app.kubernetes.io/name": "lead"}),
    LinkedPod("rank-of-b", "10.80.2.1", OTHER, OURS, (29500,)),
    LinkedPod("impostor", "10.80.3.1", "elsewhere", OURS, (80,)),
    LinkedPod("prometheus", "10.80.4.1", "monitoring", {"app": "prometheus"}),
    LinkedPod("dns", "10.80.5.1", "kube-system", {"k8s-app": "kube-dns"}, (53,)),
    LinkedPod("api-server", "203.0.113.1", ports=(443, 6443, 22)),
    LinkedPod("store", "198.51.100.20", ports=(443, 22)),
    LinkedPod("internet", "203.0.113.9", ports=(443,)),
    LinkedPod("metadata", "169.254.169.254", ports=(80, 443)),
)
ALLOWED = [
    ("rank0", "minio", 9000), ("rank-of-b", "minio", 9000), ("init", "minio", 9000), ("operator", "minio", 9000),
    ("example", "minio", 9000), ("rank1", "rank0", 29500), ("rank0", "dns", 53), ("operator", "dns", 53),
    ("operator", "api-server", 6443), ("minio", "api-server", 6443), ("prometheus", "operator", 8443),
    ("rank0", "store", 443), ("operator", "store", 443),
    ("driver", "minio", 9000), ("driver", "dns", 53),
    ("web", "internet", 443),  # no policy of ours is about it
]  # fmt: skip
REFUSED = [
    ("impostor", "minio", 9000), ("named-lead", "minio", 9000), ("named-in-team", "minio", 9000),
    ("web", "minio", 9000), ("prometheus", "minio", 9000), ("rank0", "minio", 9011),
    ("rank-of-b", "rank0", 29500), ("web", "rank0", 29500), ("impostor", "rank0", 29500), ("web", "rank0", 80),
    ("rank0", "web", 80), ("rank0", "rank-of-b", 29500), ("rank0", "impostor", 80),
    ("rank0", "api-server", 6443), ("rank0", "api-server", 443), ("rank0", "operator", 8443),
    ("rank0", "operator", 8080), ("prometheus", "operator", 8080), ("web", "operator", 8443),
    ("rank0", "internet", 443), ("rank0", "metadata", 80), ("rank0", "metadata", 443), ("rank0", "store", 22),
    ("check", "minio", 9000), ("check", "store", 443), ("check", "dns", 53), ("check", "rank0", 29500),
    ("rank0", "check", 80), ("web", "check", 80),
    ("driver", "rank0", 29500), ("driver", "internet", 443), ("rank0", "driver", 80), ("web", "driver", 80),
    ("minio", "rank0", 29500), ("operator", "rank0", 29500), ("operator", "api-server", 22),
]  # fmt: skip
VALUES = {
    "runs__namespaces": json.dumps([TEAM, OTHER]),
    "networkPolicy__storeCidrs": json.dumps(["198.51.100.0/24"]),
    "networkPolicy__metricsNamespaces": json.dumps(["monitoring"]),
    "storage__profiles__outside": json.dumps(
        {"endpoint": "s3.example.com", "secure": True, "bucket": "driving", "existingSecret": "lead-s3-driving"}
    ),
    "exampleData__enabled": "true",
    "exampleData__prefix": json.dumps(f"datasets/{TEAM}/carla_demo"),
}


@pytest.fixture(scope="module")
def links() -> Iterator[PodLinks]:
    """The pods of two teams, of the release, and strangers, between which the rendered policies are enforced."""
    if reason := can_run():
        pytest.skip(reason)
    folders = ("minio/network-policy", "operator/network-policy", "runs/network-policy")
    policies = rendered(*folders, namespace=RELEASE, **VALUES)
    assert {each["kind"] for each in policies} == {"NetworkPolicy"} and len(policies) == 8
    with PodLinks(PODS, policies) as made:
        yield made


@pytest.mark.parametrize(("origin", "target", "port"), ALLOWED)
def test_what_has_to_be_reached_is_reached(links: PodLinks, origin: str, target: str, port: int) -> None:
    assert links.reaches(origin, target, port)


@pytest.mark.parametrize(("origin", "target", "port"), REFUSED)
def test_what_nobody_needs_is_not_reached(links: PodLinks, origin: str, target: str, port: int) -> None:
    """Runs reach DNS, peers and their store; the store is reached by pods of runs, of the release, and by no other.

    Audit: S18
    """
    assert not links.reaches(origin, target, port)


def test_without_policies_every_pod_reaches_every_other() -> None:
    """The links refuse nothing by themselves: what the tests above see refused is refused by a policy."""
    if reason := can_run():
        pytest.skip(reason)
    few = [pod for pod in PODS if pod.name in ("impostor", "minio", "rank0", "metadata")]
    with PodLinks(few, []) as open_links:
        assert open_links.reaches("impostor", "minio", 9000)
        assert open_links.reaches("rank0", "metadata", 80)
