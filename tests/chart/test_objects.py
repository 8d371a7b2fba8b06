"""What the chart makes of six sets of values."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from lead_testing import PROJECT_ROOT
from lead_trainer.command_line import parser

Objects = list[dict[str, Any]]
RUN_ROLE = {
    ("lead.dev", "trainingruns"): {"get", "list", "watch", "delete"},
    ("lead.dev", "datasetcaches"): {"get", "list", "watch", "patch"},
    ("lead.dev", "trainingruns/status"): {"patch", "update"},
    ("lead.dev", "datasetcaches/status"): {"patch", "update"},
    ("lead.dev", "trainingruns/finalizers"): {"update"},
    ("lead.dev", "datasetcaches/finalizers"): {"update"},
    ("", "pods"): {"get", "list", "watch", "create", "patch", "delete"},
    ("", "services"): {"get", "list", "watch", "create", "delete"},
    ("", "persistentvolumeclaims"): {"get", "list", "watch", "create", "delete"},
    ("", "events"): {"create", "patch"},
}


def names(objects: Objects, kind: str) -> list[str]:
    return sorted(
        f"{found['metadata'].get('namespace', '')}/{found['metadata']['name']}"
        for found in objects
        if found["kind"] == kind
    )


def one(objects: Objects, kind: str, name: str, namespace: str = "lead-system") -> dict[str, Any]:
    found = [
        each
        for each in objects
        if each["kind"] == kind
        and each["metadata"]["name"] == name
        and each["metadata"].get("namespace", "") == namespace
    ]
    assert len(found) == 1, f"{kind} {namespace}/{name}: {len(found)} found"
    return found[0]


def pod_specs(objects: Objects) -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{each['kind']} {each['metadata']['name']}", each["spec"]["template"]["spec"])
        for each in objects
        if "template" in each.get("spec", {})
    ]


def rules(objects: Objects, kind: str, name: str, namespace: str = "") -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for rule in one(objects, kind, name, namespace)["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                found.setdefault((group, resource), set()).update(rule["verbs"])
    return found


def environment_of(deployment: dict[str, Any]) -> dict[str, str]:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {entry["name"]: entry.get("value", "") for entry in container["env"]}


def test_defaults_make_an_operator_and_a_store_in_the_release_namespace(render: Any) -> None:
    objects = render()
    assert {each["metadata"].get("namespace", "lead-system") for each in objects} == {"lead-system"}
    assert one(objects, "Deployment", "lead-operator")["spec"]["strategy"] == {"type": "Recreate"}
    assert names(objects, "Deployment") == ["lead-system/lead-operator"]
    assert names(objects, "StatefulSet") == ["lead-system/lead-minio"]
    assert names(objects, "Service") == ["lead-system/lead-minio"]
    assert names(objects, "ServiceAccount") == [
        f"lead-system/lead-{name}" for name in ("build", "minio", "operator", "run")
    ]
    assert names(objects, "Secret") == [
        "lead-system/lead-data-default",
        "lead-system/lead-minio-ca",
        "lead-system/lead-minio-credentials",
        "lead-system/lead-minio-tls",
        "lead-system/lead-operator-metrics-tls",
        "lead-system/lead-operator-s3-default",
        "lead-system/lead-view-default",
    ]
    assert names(objects, "NetworkPolicy") == [
        f"lead-system/lead-{name}" for name in ("checks", "closed-loops", "minio", "operator", "runs")
    ]
    assert names(objects, "PodDisruptionBudget") == names(objects, "ServiceMonitor") == []
    assert names(objects, "Namespace") == []
    (job,) = names(objects, "Job")
    assert job.startswith("lead-system/lead-storage-init-")


@pytest.mark.parametrize(("kind", "name"), [("Deployment", "lead-operator"), ("StatefulSet", "lead-minio")])
def test_what_every_run_needs_has_its_share_of_a_crowded_node(render: Any, kind: str, name: str) -> None:
    container = one(render(), kind, name)["spec"]["template"]["spec"]["containers"][0]
    assert int(container["resources"]["requests"]["cpu"].removesuffix("m")) >= 100


def test_an_external_store_makes_neither_minio_nor_secrets(render: Any) -> None:
    objects = render("external_store")
    assert names(objects, "Secret") == names(objects, "StatefulSet") == names(objects, "Job") == []
    for kind, name in (("Role", "lead-operator"), ("RoleBinding", "lead-operator"), ("ServiceAccount", "lead-run"),
                       ("ServiceAccount", "lead-build")):  # fmt: skip
        for namespace in ("team-a", "team-b"):
            one(objects, kind, name, namespace)


def test_programs_find_each_store_in_each_namespace_and_no_key_beside_its_address(render: Any) -> None:
    embedded = one(render(), "ConfigMap", "lead-store-default")["data"]
    assert embedded == {
        "url": "s3://lead", "endpoint": "lead-minio.lead-system.svc:9000", "secure": "true", "region": "us-east-1",
        "addressing": "path", "viewSecret": "lead-view-default", "caConfigMap": "lead-store-ca-default",
    }  # fmt: skip
    objects = render("external_store")
    for namespace in ("team-a", "team-b"):
        assert one(objects, "ConfigMap", "lead-store-default", namespace)["data"] == {
            "url": "s3://driving/lead/v1", "endpoint": "s3.example.com:8443", "secure": "true",
            "region": "eu-central-1", "addressing": "path", "viewSecret": "lead-s3-driving", "caConfigMap": "",
        }  # fmt: skip


def test_everything_switched_on(render: Any) -> None:
    objects = render("everything")
    assert names(objects, "Namespace") == ["/team-a", "/team-b"]
    enforced = {
        each["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for each in objects
        if each["kind"] == "Namespace"
    }
    assert enforced == {"restricted"}
    assert {name for name in names(objects, "Secret") if name.startswith("team-")} == {
        f"team-{team}/lead-{kind}-{profile}"
        for team in "ab" for kind in ("data", "view") for profile in ("default", "scratch")
    }  # fmt: skip
    assert names(objects, "Deployment") == [
        "lead-system/lead-operator", "lead-system/lead-ui", "team-a/lead-tensorboard", "team-b/lead-tensorboard",
    ]  # fmt: skip
    assert names(objects, "ServiceAccount") == [
        "lead-system/lead-minio", "lead-system/lead-operator", "lead-system/lead-ui",
        "team-a/lead-build", "team-a/trainer", "team-b/lead-build", "team-b/trainer",
    ]  # fmt: skip
    assert [name.rsplit("-", 1)[0] for name in names(objects, "Job")] == [
        "lead-system/lead-storage-init",
        "team-b/lead-example-data",
    ]
    images = {container["image"] for _, spec in pod_specs(objects) for container in spec["containers"]}
    assert "127.0.0.1:5000/lead/trainer:1" in images
    assert f"127.0.0.1:5000/lead/operator:1@sha256:{'0' * 64}" in images


def test_every_pod_satisfies_the_restricted_pod_security_standard(rendered: Objects) -> None:
    assert pod_specs(rendered)
    for name, spec in pod_specs(rendered):
        pod = spec["securityContext"]
        assert pod["runAsNonRoot"] is True and pod["runAsUser"] == pod["runAsGroup"] == 65532, name
        assert pod["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), name
        assert spec["enableServiceLinks"] is False, name
        allowed = {"configMap", "secret", "emptyDir", "projected"}
        assert all(set(volume) - {"name"} <= allowed for volume in spec["volumes"]), name
        for container in spec["containers"] + spec.get("initContainers", []):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert container["resources"]["requests"] and container["resources"]["limits"]["memory"], name


def test_only_operator_and_page_have_a_token(rendered: Objects) -> None:
    with_token = {name for name, spec in pod_specs(rendered) if spec.get("automountServiceAccountToken") is not False}
    assert with_token - {"Deployment lead-ui"} == {"Deployment lead-operator"}
    for name, spec in pod_specs(rendered):
        tokens = {volume["name"] for volume in spec["volumes"] if "serviceAccountToken" in json.dumps(volume)}
        assert tokens == ({"api"} if name == "StatefulSet lead-minio" else set())
        mounts = [mount["name"] for container in spec["containers"] for mount in container["volumeMounts"]]
        assert not tokens & set(mounts)  # the sidecar's alone: MinIO has none
    for account in (each for each in rendered if each["kind"] == "ServiceAccount"):
        if account["metadata"]["name"] not in ("lead-operator", "lead-ui"):
            assert account["automountServiceAccountToken"] is False


def test_the_operator_has_exactly_these_rights_and_none_on_secrets(rendered: Objects) -> None:
    nodes = {("", "nodes"): {"list", "watch"}}
    everywhere = one(rendered, "Deployment", "lead-operator")
    if environment_of(everywhere)["LEAD_METRICS_AUTHENTICATION"] == "TokenReview":
        nodes[("authentication.k8s.io", "tokenreviews")] = {"create"}
        nodes[("authorization.k8s.io", "subjectaccessreviews")] = {"create"}
    if environment_of(everywhere)["LEAD_RUN_NAMESPACES"] == "*":
        assert rules(rendered, "ClusterRole", "lead-operator-lead-system") == nodes | RUN_ROLE
        assert names(rendered, "Role") == ["lead-system/lead-operator-lease"]
        return
    assert rules(rendered, "ClusterRole", "lead-operator-lead-system") == nodes
    assert rules(rendered, "Role", "lead-operator-lease", "lead-system") == {
        ("coordination.k8s.io", "leases"): {"get", "create", "update"}
    }
    on_its_own = one(rendered, "Role", "lead-operator-lease", "lead-system")["rules"][1]
    assert on_its_own["resourceNames"] == [environment_of(everywhere)["LEAD_LEASE_NAME"]] == ["lead-operator"]
    roles = [each for each in rendered if each["kind"] == "Role" and each["metadata"]["name"] == "lead-operator"]
    assert roles
    for role in roles:
        assert rules(rendered, "Role", "lead-operator", role["metadata"]["namespace"]) == RUN_ROLE
    for each in rendered:
        for rule in each.get("rules", []):
            assert not {"*", "secrets", "pods/exec"} & set(rule.get("resources", []))
            assert not {"*", "escalate", "bind", "impersonate"} & set(rule["verbs"])


def test_every_binding_names_operator_or_page_and_a_role_that_exists(rendered: Objects) -> None:
    roles = set(names(rendered, "Role")) | set(names(rendered, "ClusterRole"))
    for binding in (each for each in rendered if each["kind"].endswith("RoleBinding")):
        if "metrics-reader" in binding["metadata"]["name"]:
            continue  # of whoever scrapes
        account = "lead-ui" if binding["roleRef"]["name"].startswith("lead-ui") else "lead-operator"
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": "lead-system"}]
        assert f"{binding['metadata'].get('namespace', '')}/{binding['roleRef']['name']}" in roles


def test_no_keys_but_for_raw_data_and_results_lie_in_a_namespace_for_runs(render: Any) -> None:
    """Each namespace has a data and a view key of its own; the root password stays in the release's. Audit: B3."""
    objects = render("everything")
    stored = one(objects, "Secret", "lead-minio-credentials")["data"]
    for profile in ("default", "scratch"):
        for namespace in ("team-a", "team-b"):
            for kind in ("data", "view"):
                data = one(objects, "Secret", f"lead-{kind}-{profile}", namespace)["data"]
                pair = {key: stored[f"{profile}.{namespace}.{kind}-{key}"] for key in ("access-key", "secret-key")}
                assert data == pair
            assert one(objects, "ConfigMap", f"lead-store-ca-{profile}", namespace)["data"].keys() == {"ca.crt"}
        own = one(objects, "Secret", f"lead-operator-s3-{profile}")["data"]
        assert own == {key: stored[f"{profile}.operator-{key}"] for key in ("access-key", "secret-key")}
    secrets = [
        base64.b64decode(value)
        for key, value in stored.items()
        if key.endswith(("secret-key", "password", "client-secret"))
    ]
    assert len(set(secrets)) == 12 and all(len(secret) == 40 for secret in secrets)
    assert {name for name in names(objects, "Secret") if not name.startswith("lead-system/")} == {
        f"team-{team}/lead-{kind}-{profile}"
        for team in "ab" for kind in ("data", "view") for profile in ("default", "scratch")
    }  # fmt: skip
    for name in ("lead-minio-credentials", "lead-minio-ca"):
        assert one(objects, "Secret", name)["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_nobody_mounts_the_key_of_the_stores_authority(rendered: Objects) -> None:
    for name, spec in pod_specs(rendered):
        assert "minio-ca" not in json.dumps(spec), name


def test_minio_takes_tokens_of_pods_as_storage_init_and_the_operator_expect(render: Any) -> None:
    """One role whose policies storage-init writes; tokens signed by a secret need one that nobody knows. Audit: B3."""
    from lead_operator.cli.store_policies import ROLE_POLICIES
    from lead_operator.settings import StorageProfile
    from lead_testing.token_issuer import AUDIENCE, ROLE_ARN

    objects = render()
    spec = one(objects, "StatefulSet", "lead-minio")["spec"]["template"]["spec"]
    (minio,) = spec["containers"]
    given = {entry["name"]: entry for entry in minio["env"]}
    assert given["MINIO_IDENTITY_OPENID_CLIENT_ID"]["value"] == AUDIENCE
    assert given["MINIO_IDENTITY_OPENID_ROLE_POLICY"]["value"] == ",".join(ROLE_POLICIES)
    assert given["MINIO_STS_DURATION"]["value"] == "1h"
    secret = given["MINIO_IDENTITY_OPENID_CLIENT_SECRET"]["valueFrom"]["secretKeyRef"]
    assert len(base64.b64decode(one(objects, "Secret", secret["name"])["data"][secret["key"]])) == 40
    (relay,) = spec["initContainers"]
    assert relay["restartPolicy"] == "Always" and relay["args"] == ["token-keys"]
    ports = {entry["name"]: entry["value"] for entry in relay["env"]}
    address = given["MINIO_IDENTITY_OPENID_CONFIG_URL"]["value"]
    assert address == f"http://127.0.0.1:{ports['LEAD_TOKEN_KEYS_PORT']}/.well-known/openid-configuration"
    profile = json.loads(one(objects, "ConfigMap", "lead-storage-profiles")["data"]["profiles.json"])["default"]
    assert (profile["credentials"], profile["secure"]) == ("webIdentity", True)
    as_read = StorageProfile("default", "x", "y", role_arns=profile["roleArns"])
    assert as_read.role_arn("any", "run") == as_read.role_arn("any", "build") == ROLE_ARN


def test_every_client_of_the_embedded_store_trusts_its_authority_alone(render: Any) -> None:
    """TLS by default, with names that fit the endpoint; HTTP only where it is asked for. Audit: minor-http."""
    import ssl

    objects = render("everything")
    authority = one(objects, "ConfigMap", "lead-store-ca-default")["data"]["ca.crt"]
    ssl.create_default_context(cadata=authority)
    server = base64.b64decode(one(objects, "Secret", "lead-minio-tls")["data"]["tls.crt"]).decode()
    described = subprocess.run(
        ["openssl", "x509", "-noout", "-ext", "subjectAltName"],
        input=server,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "DNS:lead-minio.lead-system.svc," in described and "IP Address:127.0.0.1" in described
    for name, spec in pod_specs(objects):
        for container in spec["containers"]:
            for probe in (value for key, value in container.items() if key.endswith("Probe")):
                if name == "StatefulSet lead-minio":
                    assert probe["httpGet"]["scheme"] == "HTTPS"
        mounted = json.dumps(spec["volumes"])
        if any(client in name for client in ("operator", "example-data", "storage-init", "tensorboard", "ui")):
            assert "lead-store-ca-" in mounted, name
    plain = render("defaults", "--set", "minio.tls.enabled=false")
    profile = json.loads(one(plain, "ConfigMap", "lead-storage-profiles")["data"]["profiles.json"])["default"]
    assert (profile["secure"], profile["caConfigMap"]) == (False, "")
    assert "--certs-dir" not in json.dumps(one(plain, "StatefulSet", "lead-minio"))
    assert "lead-minio-tls" not in json.dumps(plain)


def test_the_secrets_of_a_store_of_your_own_are_named_with_keys_and_namespaces(render: Any, notes: Any) -> None:
    told = notes("external_store")
    assert "Secrets that you create, with the keys access-key and secret-key (and ca.crt" in told
    assert "  lead-s3-driving in each namespace for runs\n  lead-s3-driving in lead-system, for the operator\n" in told
    assert "Secrets that you make" not in notes()
    objects = render("external_store")
    profile = json.loads(one(objects, "ConfigMap", "lead-storage-profiles")["data"]["profiles.json"])["default"]
    assert profile["operatorSecret"] == "lead-system/lead-s3-driving"
    assert "After helm uninstall, runs keep the phase they had" in told


def test_a_store_of_your_own_may_give_temporary_keys_too(render: Any) -> None:
    objects = render("web_identity")
    profile = json.loads(one(objects, "ConfigMap", "lead-storage-profiles")["data"]["profiles.json"])["default"]
    assert (profile["credentials"], profile["stsEndpoint"]) == ("webIdentity", "https://sts.example.com")
    every, own = "arn:aws:iam::123456789012:role/lead", "arn:aws:iam::123456789012:role/lead-build"
    assert profile["roleArns"] == {"*": {"run": every, "build": every}, "team-a": {"build": own}}
    assert (profile["shared"], profile["namespaces"]) == (["datasets/common/", "weights/"], ["team-a"])
    assert profile["caConfigMap"] == "lead-store-ca-own"
    assert names(objects, "Secret") == ["lead-system/lead-operator-metrics-tls"] and names(objects, "Job") == []


def test_the_operator_reads_the_profiles_as_written(rendered: Objects, tmp_path: Any) -> None:
    from lead_operator.settings import PROFILE_KEYS, read_profiles

    text = one(rendered, "ConfigMap", "lead-storage-profiles")["data"]["profiles.json"]
    (tmp_path / "profiles.json").write_text(text)
    profiles = read_profiles(tmp_path / "profiles.json")
    for name, profile in profiles.items():
        assert set(json.loads(text)[name]) == PROFILE_KEYS
        embedded = profile.endpoint == "lead-minio.lead-system.svc:9000"
        assert embedded or profile.endpoint.startswith("s3.example.com")
        assert profile.secret_name.startswith("lead-s3-")


@pytest.mark.parametrize(
    "asked, told", [("", "path"), (",storage.profiles.default.addressing=virtualHost", "virtualHost")]
)
def test_operator_and_the_charts_own_pods_name_the_bucket_alike(render: Any, asked: str, told: str) -> None:
    values = "exampleData.enabled=true,exampleData.prefix=datasets/team-a/demo,tensorboard.enabled=true"
    objects = render("external_store", "--set", values + asked)
    profiles = json.loads(one(objects, "ConfigMap", "lead-storage-profiles")["data"]["profiles.json"])
    assert profiles["default"]["addressing"] == told
    pods = [each["spec"]["template"]["spec"] for each in objects if each["kind"] in ("Job", "Deployment")]
    env = [entry for pod in pods for entry in pod["containers"][0].get("env", [])]
    assert [entry["value"] for entry in env if entry["name"] == "LEAD_S3_ADDRESSING"] == [told] * len(
        [entry for entry in env if entry["name"] == "LEAD_S3_ENDPOINT"]
    )


def test_a_profile_without_its_secret_keeps_no_other_from_being_used(rendered: Objects) -> None:
    volumes = one(rendered, "Deployment", "lead-operator")["spec"]["template"]["spec"]["volumes"]
    sources = [source for volume in volumes if "projected" in volume for source in volume["projected"]["sources"]]
    assert sources and all(one_of["optional"] for source in sources for one_of in source.values())


def test_the_operator_reads_its_settings_from_the_deployment(rendered: Objects, tmp_path: Any) -> None:
    from lead_operator.settings import read_settings

    spec = one(rendered, "Deployment", "lead-operator")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    environment = {entry["name"]: entry.get("value", "lead-system") for entry in container["env"]}
    profiles = one(rendered, "ConfigMap", "lead-storage-profiles")["data"]["profiles.json"]
    (tmp_path / "profiles.json").write_text(profiles)
    settings = read_settings({**environment, "LEAD_STORAGE_PROFILES_FILE": str(tmp_path / "profiles.json")})
    assert (settings.release_namespace, settings.lease_name) == ("lead-system", "lead-operator")
    for name in (settings.run_service_account, settings.build_service_account):
        assert settings.run_namespaces == ("",) or list(settings.run_namespaces) == sorted(
            account["metadata"]["namespace"]
            for account in rendered
            if account["kind"] == "ServiceAccount" and account["metadata"]["name"] == name
        )
    given = (
        {"NCCL_SOCKET_IFNAME": "=eth0,eth1", "NCCL_DEBUG": "INFO"} if settings.trainer_pull_policy == "Never" else {}
    )
    assert settings.pod_environment == given
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {str(settings.credentials_dir / name) for name in settings.storage_profiles} <= mounts
    known = {name for name in environment if name.startswith("LEAD_")}
    assert known == {
        "LEAD_TRAINER_IMAGE", "LEAD_TRAINER_PULL_POLICY", "LEAD_STORAGE_PROFILES_FILE", "LEAD_OPERATOR_CREDENTIALS_DIR",
        "LEAD_POD_ENVIRONMENT", "LEAD_POD_DISK", "LEAD_POD_SECURITY", "LEAD_POLICY", "LEAD_IMAGE_PULL_SECRETS",
        "LEAD_RUN_NAMESPACES", "LEAD_RUN_SERVICE_ACCOUNT", "LEAD_BUILD_SERVICE_ACCOUNT", "LEAD_RELEASE_NAMESPACE",
        "LEAD_LOG_LEVEL",
        "LEAD_METRICS_AUTHENTICATION", "LEAD_METRICS_PORT", "LEAD_METRICS_CERTIFICATES_DIR",
        "LEAD_HEALTH_PORT", "LEAD_LEASE_NAME", "LEAD_RESYNC_SECONDS", "LEAD_RELIST_SECONDS",
        "LEAD_PROGRESS_SECONDS", "LEAD_SOURCE_CHECK_SECONDS", "LEAD_WORKERS", "LEAD_API_IN_FLIGHT",
        "LEAD_API_CALLS_PER_SECOND",
    }  # fmt: skip


def test_storage_init_is_given_what_it_reads(render: Any, tmp_path: Any) -> None:
    from lead_operator.cli.storage_init import read_request

    objects = render("everything")
    (job,) = [each for each in objects if each["kind"] == "Job" and "storage-init" in each["metadata"]["name"]]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (tmp_path / "profiles.json").write_text(one(objects, "ConfigMap", "lead-storage-profiles")["data"]["profiles.json"])
    for key, value in one(objects, "Secret", "lead-minio-credentials")["data"].items():
        (tmp_path / key).write_bytes(base64.b64decode(value))
    environment = {entry["name"]: entry["value"] for entry in container["env"]}
    environment["LEAD_STORAGE_PROFILES_FILE"] = str(tmp_path / "profiles.json")
    environment["LEAD_STORAGE_INIT_CREDENTIALS_DIR"] = str(tmp_path)
    wanted = read_request(environment)
    assert re.fullmatch("lead-root-[a-z0-9]{12}", wanted.root.access_key) and not wanted.alone
    assert (wanted.run_account, wanted.build_account) == ("trainer", "lead-build")
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(wanted.ca_file) == "/etc/lead/ca/ca.crt" and "/etc/lead/ca" in mounts
    for entry in wanted.profiles:
        name = entry.profile.name
        assert list(entry.people) == list(entry.viewers) == ["team-a", "team-b"]
        for team, key in entry.people.items():
            assert re.fullmatch(f"lead-data-{name}.{team}.[a-z0-9]{{12}}", key.access_key)
        assert re.fullmatch(f"lead-operator-{name}-[a-z0-9]{{12}}", entry.operator.access_key)


def test_a_changed_profile_restarts_the_operator_and_makes_another_job(render: Any) -> None:
    before, after = render(), render("defaults", "--set", "storage.profiles.default.bucket=other")
    digests = [
        one(objects, "Deployment", "lead-operator")["spec"]["template"]["metadata"]["annotations"]
        for objects in (before, after)
    ]
    assert digests[0] != digests[1]
    assert names(before, "Job") != names(after, "Job")
    assert names(before, "Job") == names(render(), "Job")


def test_two_releases_in_one_namespace_have_a_lease_each(render: Any) -> None:
    deployment = one(render(release="second"), "Deployment", "second-operator")
    assert environment_of(deployment)["LEAD_LEASE_NAME"] == "second-operator"


def test_another_chart_version_changes_no_job_and_restarts_no_store(render: Any, tmp_path: Path) -> None:
    newer = Path(shutil.copytree(PROJECT_ROOT / "charts/lead", tmp_path / "lead"))
    chart = yaml.safe_load((newer / "Chart.yaml").read_text())
    (newer / "Chart.yaml").write_text(yaml.safe_dump({**chart, "version": "99.0.0", "appVersion": "99"}))
    before, after = (
        {f"{each['kind']} {each['metadata']['name']}": each["spec"]["template"] for each in objects
         if each["kind"] in ("Job", "StatefulSet")}
        for objects in (render("everything"), render("everything", chart=newer))
    )  # fmt: skip
    assert len(before) == 3 and before == after


def test_whatever_changes_a_jobs_pod_makes_another_job(render: Any) -> None:
    before = names(render("everything"), "Job")
    after = names(render("everything", "--set", "imagePullSecrets[0].name=mirror"), "Job")
    assert len(before) == 2 and not set(before) & set(after)


@pytest.mark.parametrize(
    "values, reach",
    [
        ("defaults", [{"port": 9000}]),
        ("external_store", [{"port": 8443}]),
        ("everything", [{"port": 9000}, {"port": 443}, {"port": 443}]),
    ],
)
def test_pods_of_runs_reach_dns_their_peers_and_the_store_alone(
    render: Any, values: str, reach: list[dict[str, int]]
) -> None:
    policies = [each for each in render(values) if each["metadata"]["name"] == "lead-runs"]
    assert policies
    ours = {"matchLabels": {"app.kubernetes.io/managed-by": "lead-operator"}}
    apart = {"matchExpressions": [{"key": "lead.dev/role", "operator": "NotIn", "values": ["check", "closed-loop"]}]}
    for policy in policies:
        spec = policy["spec"]
        assert spec["podSelector"] == ours | apart and spec["policyTypes"] == ["Ingress", "Egress"]
        assert spec["ingress"] == [{"from": [{"podSelector": ours | apart}]}]
        peers, dns, *others = spec["egress"]
        assert peers == {"to": [{"podSelector": ours}]}
        assert {port["port"] for port in dns["ports"]} == {53}
        assert [{"port": rule["ports"][0]["port"]} for rule in others] == reach


def test_pods_that_check_a_configuration_reach_nothing_and_nothing_reaches_them(render: Any) -> None:
    for values in ("defaults", "everything"):
        policies = [each for each in render(values) if each["metadata"]["name"] == "lead-checks"]
        assert policies
        for policy in policies:
            labels = {"app.kubernetes.io/managed-by": "lead-operator", "lead.dev/role": "check"}
            assert policy["spec"] == {"podSelector": {"matchLabels": labels}, "policyTypes": ["Ingress", "Egress"]}


def test_pods_that_drive_reach_dns_and_the_store_and_no_peer(render: Any) -> None:
    """What runs in them is a program of the user's."""
    for values, ports in (("defaults", [53, 9000]), ("external_store", [53, 8443])):
        policies = [each for each in render(values) if each["metadata"]["name"] == "lead-closed-loops"]
        assert policies
        for policy in policies:
            spec = policy["spec"]
            labels = {"app.kubernetes.io/managed-by": "lead-operator", "lead.dev/role": "closed-loop"}
            assert spec["podSelector"] == {"matchLabels": labels} and spec["policyTypes"] == ["Ingress", "Egress"]
            assert "ingress" not in spec and [rule["ports"][-1]["port"] for rule in spec["egress"]] == ports


def test_switched_off_things_are_gone(render: Any) -> None:
    objects = render("defaults", "--set", "networkPolicy.enabled=false,minio.persistence.enabled=false")
    assert names(objects, "NetworkPolicy") == []
    spec = one(objects, "StatefulSet", "lead-minio")["spec"]
    assert "volumeClaimTemplates" not in spec
    assert {"name": "data", "emptyDir": {"sizeLimit": "20Gi"}} in spec["template"]["spec"]["volumes"]


def test_the_example_data_job_says_what_the_trainers_command_line_understands(render: Any, tmp_path: Path) -> None:
    objects = render("defaults", "--set", "exampleData.enabled=true,exampleData.routes=1,exampleData.frames=2")
    (job,) = [each for each in objects if each["kind"] == "Job" and "example-data" in each["metadata"]["name"]]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    command = [sys.executable, "-m", "lead_trainer", *container["args"]]
    environment = {**os.environ, "LEAD_STORE_URL": f"file://{tmp_path}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "datasets/carla_demo/data").rglob("*.jpg"))
    names_of_env = {entry["name"] for entry in container["env"]}
    assert names_of_env == {
        "LEAD_STORE_URL", "LEAD_S3_ENDPOINT", "LEAD_S3_SECURE", "LEAD_S3_CREDENTIALS", "LEAD_S3_REGION",
        "LEAD_S3_ADDRESSING", "HOME",
    }  # fmt: skip
    (keys,) = [each["projected"] for each in job["spec"]["template"]["spec"]["volumes"] if "projected" in each]
    assert keys["sources"][0]["secret"]["name"] == "lead-data-default"
    assert "datasets/carla_demo: 1 routes of 2 frames: started" in done.stderr


@pytest.mark.parametrize("named, mounted", [("", "lead-s3-driving"), ("lead-data-default", "lead-data-default")])
def test_on_a_store_of_your_own_the_example_data_may_have_a_key_of_their_own(
    render: Any, named: str, mounted: str
) -> None:
    values = f"exampleData.enabled=true,exampleData.prefix=datasets/team-a/demo,exampleData.existingSecret={named}"
    objects = render("external_store", "--set", values)
    (job,) = [each for each in objects if each["kind"] == "Job" and "example-data" in each["metadata"]["name"]]
    (keys,) = [each["projected"] for each in job["spec"]["template"]["spec"]["volumes"] if "projected" in each]
    assert [source["secret"]["name"] for source in keys["sources"] if "secret" in source] == [mounted]


def test_tensorboard_reads_the_runs_of_its_namespace_by_the_view_key(render: Any) -> None:
    objects = render("defaults", "--set", "tensorboard.enabled=true")
    (container,) = one(objects, "Deployment", "lead-tensorboard")["spec"]["template"]["spec"]["containers"]
    options = parser().parse_args(container["args"])
    assert (options.command, options.namespace, options.host, options.port) == ("tensorboard", "lead-system", "*", 6006)
    (keys,) = [
        volume["projected"]
        for volume in one(objects, "Deployment", "lead-tensorboard")["spec"]["template"]["spec"]["volumes"]
        if "projected" in volume
    ]
    assert keys["sources"][0]["secret"]["name"] == "lead-view-default"
    policy = one(objects, "NetworkPolicy", "lead-tensorboard")["spec"]
    assert policy["ingress"] == [{"from": [{"podSelector": {}}], "ports": [{"protocol": "TCP", "port": 6006}]}]


def test_two_replicas_share_the_work_of_staying_alive(render: Any) -> None:
    objects = render("cluster_wide")
    deployment = one(objects, "Deployment", "lead-operator")["spec"]
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    pod = deployment["template"]
    spread = pod["spec"]["topologySpreadConstraints"]
    assert [each["topologyKey"] for each in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    budget = one(objects, "PodDisruptionBudget", "lead-operator")["spec"]
    assert budget["minAvailable"] == 1
    selectors = [budget["selector"], deployment["selector"], *(each["labelSelector"] for each in spread)]
    assert all(each["matchLabels"].items() <= pod["metadata"]["labels"].items() for each in selectors)
    assert (pod["spec"]["priorityClassName"], "nodeAffinity" in pod["spec"]["affinity"]) == (
        "system-cluster-critical", True,
    )  # fmt: skip


def test_a_service_monitor_finds_the_operators_metrics(render: Any) -> None:
    objects = render("cluster_wide")
    monitor = one(objects, "ServiceMonitor", "lead-operator")
    service = one(objects, "Service", "lead-operator-metrics")
    pod = one(objects, "Deployment", "lead-operator")["spec"]["template"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    (port,) = service["spec"]["ports"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["path"], endpoint["interval"]) == (port["name"], "/metrics", "15s")
    assert endpoint["scheme"] == "https" and endpoint["bearerTokenFile"].endswith("serviceaccount/token")
    assert endpoint["tlsConfig"]["serverName"] == "lead-operator-metrics.lead-system.svc"
    certificate = one(objects, "Secret", endpoint["tlsConfig"]["ca"]["secret"]["name"])
    assert set(certificate["data"]) == {"ca.crt", "tls.crt", "tls.key"}
    ports = {each["name"]: each["containerPort"] for each in pod["spec"]["containers"][0]["ports"]}
    assert ports[port["targetPort"]] == port["port"]


def test_who_may_view_or_edit_a_namespace_may_view_or_edit_its_runs(render: Any) -> None:
    objects = render()
    view, edit = (one(objects, "ClusterRole", f"lead-{right}-lead-system", "") for right in ("view", "edit"))
    added = {
        role["metadata"]["name"]: {
            key.rsplit("-", 1)[1] for key in role["metadata"]["labels"] if key.startswith("rbac.authorization.k8s.io/")
        }
        for role in (view, edit)
    }
    assert added == {"lead-view-lead-system": {"view", "edit", "admin"}, "lead-edit-lead-system": {"edit", "admin"}}
    assert {verb for rule in view["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert all("status" not in resource for rule in edit["rules"] for resource in rule["resources"])
    assert "ClusterRole" not in {
        each["kind"] for each in render("cluster_wide") if "lead-view" in str(each["metadata"])
    }


def runs_policy(objects: Objects) -> dict[str, Any]:
    spec: dict[str, Any] = next(each for each in objects if each["metadata"]["name"] == "lead-runs")["spec"]
    return spec


def test_policies_open_what_the_operator_and_the_store_need_and_no_more(rendered: Objects) -> None:
    policy = one(rendered, "NetworkPolicy", "lead-operator")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    answers = environment_of(one(rendered, "Deployment", "lead-operator"))["LEAD_METRICS_AUTHENTICATION"]
    opened = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
    assert opened == ({8443} if answers == "TokenReview" else set())
    profiles = json.loads(one(rendered, "ConfigMap", "lead-storage-profiles")["data"]["profiles.json"])
    assert all(rule in policy["egress"] for rule in runs_policy(rendered)["egress"] if "192.0.2.7" in str(rule))
    stores = {int(profile["endpoint"].rpartition(":")[2] or 443) if ":" in profile["endpoint"] else 443
              for profile in profiles.values()}  # fmt: skip
    assert {port["port"] for rule in policy["egress"] for port in rule["ports"]} == {53, 443, 6443} | stores
    store = [each for each in rendered if each["kind"] == "NetworkPolicy" and each["metadata"]["name"] == "lead-minio"]
    for each in store:
        (rule,) = each["spec"]["ingress"]
        assert rule["ports"] == [{"protocol": "TCP", "port": 9000}]
        peers = {
            tuple(peer["podSelector"]["matchLabels"].items())[-1]: set(peer) - {"podSelector"}
            for peer in rule["from"]
            if "matchLabels" in peer["podSelector"]
        }
        assert peers.pop(("app.kubernetes.io/component", "operator")) == set()
        assert peers.pop(("app.kubernetes.io/component", "storage-init")) == set()
        served = {"key": "app.kubernetes.io/managed-by", "operator": "In", "values": ["lead-operator", "lead-data"]}
        assert served in (peer["podSelector"].get("matchExpressions", [None])[0] for peer in rule["from"])
        further = {
            ("app.kubernetes.io/component", part): {"namespaceSelector"} for part in ("example-data", "tensorboard")
        }
        on = any(found["kind"] == "Deployment" and found["metadata"]["name"] == "lead-ui" for found in rendered)
        assert peers.pop(("app.kubernetes.io/component", "ui"), None) == (set() if on else None)
        assert peers in ({}, further)


def test_the_notes_speak_of_the_namespaces_that_the_values_name(notes: Callable[..., str]) -> None:
    assert "DatasetCaches in lead-system\n" in notes()
    wide = notes("cluster_wide")
    assert "DatasetCaches in every namespace; prepared for them: team-a\n" in wide
    assert "kubectl -n team-a apply -f crds/examples/lead-carla-leaderboard2.yaml" in wide
    several = notes("everything")
    assert "DatasetCaches in team-a, team-b\n" in several
    commands = [line for line in several.splitlines() if "kubectl -n" in line]
    assert len(commands) == 4 and all("kubectl -n team-b " in line for line in commands)
    assert "  sed 's#datasets/carla_demo#" in commands[1], "the example lies below the namespace's own prefix"
    first = "exampleData.namespace=,exampleData.prefix=datasets/team-a/carla_demo"
    assert "kubectl -n team-a wait" in notes("everything", "--set", first)
