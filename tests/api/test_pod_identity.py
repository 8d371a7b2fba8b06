"""Pods that prove who they are at the store by a token: what a real API server makes of them and of their token."""

import base64
import json
import ssl
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from lead_testing.api_bench import Bench
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.pod_driver import Api


@pytest.fixture
def by_token(bench: Bench, tmp_path: Path) -> Bench:
    """An operator whose storage profile is used by tokens, in a namespace that takes restricted pods alone."""
    profile = {
        "endpoint": bench.minio.endpoint, "bucket": bench.namespace, "secure": False, "credentials": "webIdentity",
        "roleArns": {"*": {"run": "arn:run", "build": "arn:build"}}, "caConfigMap": "lead-store-ca-default",
        "shared": ["datasets/", "weights/"],
    }  # fmt: skip
    (tmp_path / "profiles.json").write_text(json.dumps({"default": profile}))
    bench.plane.kubectl(
        "label", "--overwrite", "namespace", bench.namespace, "pod-security.kubernetes.io/enforce=restricted"
    )
    for account in ("lead-run", "lead-build"):
        bench.kubectl("create", "serviceaccount", account)
    bench.operator.start(LEAD_STORAGE_PROFILES_FILE=str(tmp_path / "profiles.json"))
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town"))
    bench.wait_phase("trun", "drive", "Succeeded", "Failed")
    return bench


def pods_by_role(bench: Bench) -> dict[str, dict[str, Any]]:
    return {pod["metadata"]["labels"]["lead.dev/role"]: pod for pod in bench.driver.seen.values()}


def token_source(pod: dict[str, Any]) -> dict[str, Any]:
    """Returns what the kubelet is asked to keep in the pod's token file."""
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    found: dict[str, Any] = volumes["store-token"]["projected"]["sources"][0]["serviceAccountToken"]
    return found


def test_pods_with_a_token_are_admitted_and_the_api_server_does_not_take_it(by_token: Bench) -> None:
    """Audit: B3
    Audit: S12"""
    assert by_token.status("trun", "drive")["phase"] == "Succeeded"
    assert "FailedCreate" not in by_token.kubectl("get", "events")
    pods = pods_by_role(by_token)
    for role, account in (("train", "lead-run"), ("build", "lead-build")):
        spec, source = pods[role]["spec"], token_source(pods[role])
        assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == (account, False)
        assert not [volume for volume in spec["volumes"] if "secret" in volume]
        token = by_token.kubectl(
            "create",
            "token",
            account,
            "--audience",
            source["audience"],
            "--duration",
            f"{source['expirationSeconds']}s",
        ).strip()
        subject = f"system:serviceaccount:{by_token.namespace}:{account}"
        assert review(by_token.driver.api, token, [source["audience"]])["user"]["username"] == subject
        assert not review(by_token.driver.api, token, []).get("authenticated")
        assert status_with(by_token, token) == 401


def test_a_token_for_the_api_server_would_be_taken(by_token: Bench) -> None:
    """Or the test above would prove nothing."""
    token = by_token.kubectl("create", "token", "lead-run").strip()
    assert review(by_token.driver.api, token, [])["authenticated"]
    assert status_with(by_token, token) == 403


def review(api: Api, token: str, audiences: list[str]) -> dict[str, Any]:
    """Asks the API server whose token this is."""
    spec = {"token": token, **({"audiences": audiences} if audiences else {})}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    found: dict[str, Any] = api.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body)["status"]
    return found


def status_with(bench: Bench, token: str) -> int:
    """Asks for the pods of the namespace as the holder of a token; returns the answer's status."""
    cluster = yaml.safe_load(bench.plane.kubeconfig.read_text())["clusters"][0]["cluster"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    pool = urllib3.PoolManager(ssl_context=ssl.create_default_context(cadata=authority), retries=False, timeout=10.0)
    path = f"{cluster['server']}/api/v1/namespaces/{bench.namespace}/pods"
    return int(pool.request("GET", path, headers={"Authorization": f"Bearer {token}"}).status)
