"""The chart on a real API server: it installs, upgrades keep the credentials, pods pass the restricted wall."""

import base64
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lead_testing import PROJECT_ROOT
from lead_testing.local_cluster.api_server import no_proxy_environment
from lead_testing.local_cluster.control_plane import ControlPlane
from lead_testing.operator_process import wait_for
from lead_testing.pages import PAGES, watches

CHART = str(PROJECT_ROOT / "charts/lead")
OPERATOR = "system:serviceaccount:lead-system:lead-operator"
Release = Callable[..., str]


@pytest.fixture(scope="module")
def release(server: ControlPlane, helm_program: Path) -> Release:
    def run(*options: str) -> str:
        command = [str(helm_program), "upgrade", "--install", "lead", CHART, "--namespace", "lead-system", *options]
        environment = {**no_proxy_environment(), "KUBECONFIG": str(server.kubeconfig)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=180)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def secrets(server: ControlPlane) -> dict[str, dict[str, str]]:
    listed = json.loads(server.kubectl("get", "secrets", "-A", "-o", "json"))["items"]
    ours = [each for each in listed if each["type"] == "Opaque"]  # not the server's certificate, new at each upgrade
    return {f"{each['metadata']['namespace']}/{each['metadata']['name']}": each["data"] for each in ours}


def may(server: ControlPlane, verb: str, resource: str, namespace: str) -> bool:
    kind, _, subresource = resource.partition("/")
    plural, _, group = kind.partition(".")
    asked = {"verb": verb, "group": group, "resource": plural, "subresource": subresource, "namespace": namespace}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": OPERATOR, "resourceAttributes": asked},
    }
    answer = server.kubectl("create", "-f", "-", "-o", "jsonpath={.status.allowed}", stdin=json.dumps(review))
    return {"true": True, "false": False}[answer]


def pods_of(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns a bare Pod for each pod template: Pod Security refuses pods, and only warns of Deployments."""
    pods = []
    for each in objects:
        template = each.get("spec", {}).get("template")
        if template:
            metadata = {"name": each["metadata"]["name"], "namespace": "lead-system"}
            spec = template["spec"]
            for claim in each["spec"].get("volumeClaimTemplates", []):
                name = claim["metadata"]["name"]
                spec["volumes"].append({"name": name, "persistentVolumeClaim": {"claimName": name}})
            pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return pods


def test_default_values_install_and_upgrades_keep_the_credentials(server: ControlPlane, release: Release) -> None:
    notes = release()
    assert "kubectl -n lead-system get trainingruns --watch" in notes
    assert "trainingruns.lead.dev" in server.kubectl("get", "crds", "-o", "name")
    first = secrets(server)
    assert sorted(first) == [
        "lead-system/lead-data-default",
        "lead-system/lead-minio-ca",
        "lead-system/lead-minio-credentials",
        "lead-system/lead-operator-s3-default",
        "lead-system/lead-view-default",
    ]
    release("--set", "operator.logLevel=DEBUG")
    assert secrets(server) == first
    release("--set", "runs.namespaces={team-a},runs.createNamespaces=true,exampleData.enabled=true")
    later = secrets(server)
    kept, before = later["lead-system/lead-minio-credentials"], first["lead-system/lead-minio-credentials"]
    assert {key for key in before if kept.get(key) != before[key]} == {
        "default.lead-system.data-access-key", "default.lead-system.data-secret-key",
        "default.lead-system.view-access-key", "default.lead-system.view-secret-key",
    }  # fmt: skip
    assert later["team-a/lead-data-default"]["secret-key"] == kept["default.team-a.data-secret-key"]
    assert "lead-system/lead-data-default" not in later


def test_the_stores_authority_changes_so_that_clients_always_know_the_server(
    server: ControlPlane, release: Release, tmp_path: Path
) -> None:
    """Another generation: first both are trusted, then the new one signs, then the old one goes. Audit: minor-http."""

    def now() -> tuple[str, int, bool]:
        """Who signs the server's certificate, how many authorities clients trust, and whether they trust the server."""
        bundle, certificate = tmp_path / "ca.crt", tmp_path / "tls.crt"
        place = ("-n", "lead-system", "-o")
        bundle.write_text(
            server.kubectl("get", "configmap", "lead-store-ca-default", *place, r"jsonpath={.data.ca\.crt}")
        )
        encoded = server.kubectl("get", "secret", "lead-minio-tls", *place, r"jsonpath={.data.tls\.crt}")
        certificate.write_bytes(base64.b64decode(encoded))
        issuer = subprocess.run(
            ["openssl", "x509", "-in", certificate, "-noout", "-issuer"], capture_output=True, text=True, check=True
        ).stdout
        verified = subprocess.run(
            ["openssl", "verify", "-CAfile", bundle, certificate], capture_output=True, check=False
        )
        return issuer.rsplit("-", 1)[-1].strip(), bundle.read_text().count("BEGIN"), verified.returncode == 0

    release("--reset-values")
    first = secrets(server)["lead-system/lead-minio-ca"]
    assert now() == ("1", 1, True)
    assert lasts_years(tmp_path / "tls.crt", 3) and lasts_years(tmp_path / "ca.crt", 10)
    another = ("--reuse-values", "--set", "minio.tls.generation=2")
    seen = [release(*another) and now() for _ in range(4)]
    assert seen == [("1", 2, True), ("2", 2, True), ("2", 1, True), ("2", 1, True)]
    assert secrets(server)["lead-system/lead-minio-ca"]["ca.crt"] != first["ca.crt"]


def lasts_years(certificate: Path, years: int) -> bool:
    """Tells whether a certificate of now ends in so many years, to the week."""
    asked = [
        subprocess.run(
            ["openssl", "x509", "-in", certificate, "-noout", "-checkend", str((365 * years + days) * 24 * 3600)],
            capture_output=True, check=False,
        ).returncode
        for days in (-7, 7)
    ]  # fmt: skip
    return asked == [0, 1]


def test_a_key_that_is_rotated_as_the_page_says_reaches_people_and_store(
    server: ControlPlane, release: Release
) -> None:
    release("--reset-values")
    before = secrets(server)
    in_release = ("--namespace", "lead-system")
    patch = json.dumps({"stringData": {"default.lead-system.data-secret-key": "another-key"}})
    server.kubectl("patch", "secret", "lead-minio-credentials", *in_release, "-p", patch)
    server.kubectl("delete", "job", *in_release, "-l", "app.kubernetes.io/component=storage-init")
    release("--reuse-values")
    after = secrets(server)
    assert base64.b64decode(after["lead-system/lead-data-default"]["secret-key"]) == b"another-key"
    assert after["lead-system/lead-operator-s3-default"] == before["lead-system/lead-operator-s3-default"]
    assert "storage-init" in server.kubectl("get", "jobs", *in_release, "-o", "name")


def test_every_watch_that_a_page_advises_is_one_that_kubectl_takes(server: ControlPlane, release: Release) -> None:
    release()
    pages = [*PAGES, *(PROJECT_ROOT / "crds/examples").iterdir(), PROJECT_ROOT / "charts/lead/templates/NOTES.txt"]
    advised = set().union(*(watches(page.read_text()) for page in pages))
    assert ("get", "trainingruns", "--watch") in advised
    for watch in advised:
        server.kubectl(*watch, "--namespace=lead-system", "--request-timeout=5s")


def test_every_pod_is_admitted_where_the_restricted_standard_is_enforced(server: ControlPlane, rendered: Any) -> None:
    pods = pods_of(rendered)
    assert pods
    document = {"apiVersion": "v1", "kind": "List", "items": pods}
    answer = server.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(document))
    assert answer.count("created (server dry run)") == len(pods)


def test_the_api_server_takes_every_object(server: ControlPlane, rendered: Any) -> None:
    for namespace in ("team-a", "team-b", "untouched"):
        text = server.kubectl("create", "namespace", namespace, "--dry-run=client", "-o", "yaml")
        server.kubectl("apply", "-f", "-", stdin=text)
    foreign = ("Namespace", "ServiceMonitor")  # those above; the kind of another operator
    items = [each for each in rendered if each["kind"] not in foreign]
    document = {"apiVersion": "v1", "kind": "List", "items": items}
    command = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-")
    server.kubectl(*command, stdin=json.dumps(document).replace("lead-system", "untouched"))


def test_the_operator_may_what_it_needs_and_no_more(server: ControlPlane, release: Release) -> None:
    release("--set", "runs.namespaces={team-a},runs.createNamespaces=true")
    for verb, resource in (
        ("create", "pods"),
        ("watch", "trainingruns.lead.dev"),
        ("patch", "trainingruns.lead.dev/status"),
    ):
        wait_for(f"{verb} {resource}", lambda v=verb, r=resource: may(server, v, r, "team-a"), within_s=60)
    for verb, resource in (
        ("get", "secrets"), ("list", "secrets"), ("create", "pods/exec"), ("patch", "trainingruns.lead.dev"),
        ("create", "roles"), ("get", "nodes/proxy"), ("impersonate", "users"), ("create", "serviceaccounts/token"),
    ):  # fmt: skip
        assert not may(server, verb, resource, "team-a"), f"{verb} {resource}"
        assert not may(server, verb, resource, "lead-system"), f"{verb} {resource}"
    assert not may(server, "create", "pods", "default")
    assert not may(server, "list", "trainingruns.lead.dev", "default")


def test_removing_the_release_loses_no_run_no_data_and_no_key(
    server: ControlPlane, release: Release, helm_program: Path
) -> None:
    release("--set", "runs.namespaces={team-a},runs.createNamespaces=true")
    run = {
        "apiVersion": "lead.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {"name": "drive", "namespace": "team-a"},
        "spec": {"recipe": "lead", "datasets": [{"cacheRef": {"name": "towns"}}]},
    }
    server.kubectl("create", "-f", "-", stdin=json.dumps(run))
    kept = {name: secrets(server)[f"lead-system/lead-minio-{name}"] for name in ("credentials", "ca")}
    environment = {**no_proxy_environment(), "KUBECONFIG": str(server.kubeconfig)}
    command = [str(helm_program), "uninstall", "lead", "--namespace", "lead-system"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr
    assert "deployments" not in server.kubectl("-n", "lead-system", "get", "deployments", "-o", "name")
    assert server.kubectl("-n", "team-a", "get", "trainingruns", "-o", "name").strip() == "trainingrun.lead.dev/drive"
    assert {name: secrets(server)[f"lead-system/lead-minio-{name}"] for name in kept} == kept
    release("--set", "runs.namespaces={team-a},runs.createNamespaces=true")
    assert {name: secrets(server)[f"lead-system/lead-minio-{name}"] for name in kept} == kept
