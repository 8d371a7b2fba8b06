"""What a pod is given to reach its store: a token and a role, or a Secret; and the store's authority."""

from dataclasses import replace
from typing import Any

import pytest

from lead_operator.objects.build_pod import build_cache_pod
from lead_operator.objects.training_pod import build_training_pod
from lead_operator.settings import StorageProfile
from lead_protocol import environment
from lead_protocol.job import DatasetSource
from lead_testing.makers import DIGEST, PROFILE, SETTINGS, a_dataset_cache, a_training_run

BY_TOKEN = replace(
    PROFILE,
    credentials="webIdentity",
    role_arns={"*": {"run": "arn:run", "build": "arn:build"}, "team-b": {"run": "arn:b"}},
)


def a_pod(role: str, profile: StorageProfile) -> dict[str, Any]:
    if role == "build":
        return build_cache_pod(a_dataset_cache(), attempt=1, index=0, profile=profile, settings=SETTINGS)
    run = a_training_run()
    return build_training_pod(
        run,
        run.instances[0],
        attempt=1,
        rank=0,
        datasets={"towns": DatasetSource(name="towns", digest=DIGEST)},
        profile=profile,
        settings=SETTINGS,
    )


def env_of(pod: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in pod["spec"]["containers"][0]["env"] if "value" in each}


def volumes_of(pod: dict[str, Any]) -> dict[str, Any]:
    return {volume["name"]: volume for volume in pod["spec"]["volumes"]}


def mounts_of(pod: dict[str, Any]) -> dict[str, Any]:
    return {mount["name"]: mount for mount in pod["spec"]["containers"][0]["volumeMounts"]}


@pytest.mark.parametrize(("role", "account"), [("run", "lead-run"), ("build", "lead-build")])
def test_a_pod_has_a_token_for_the_store_alone_and_no_lasting_key(role: str, account: str) -> None:
    """Audit: B3
    Audit: S12"""
    pod = a_pod(role, BY_TOKEN)
    assert pod["spec"]["serviceAccountName"] == account
    assert pod["spec"]["automountServiceAccountToken"] is False
    token = {"audience": "lead-store", "expirationSeconds": 3600, "path": "token"}
    assert volumes_of(pod)["store-token"] == {
        "name": "store-token",
        "projected": {"defaultMode": 0o440, "sources": [{"serviceAccountToken": token}]},
    }
    mounted = {"name": "store-token", "mountPath": "/var/run/secrets/lead/store", "readOnly": True}
    assert mounts_of(pod)["store-token"] == mounted
    assert f"{mounted['mountPath']}/{token['path']}" == environment.STORE_TOKEN_FILE
    assert "s3" not in volumes_of(pod) and "s3" not in mounts_of(pod)
    assert not [volume for volume in pod["spec"]["volumes"] if "secret" in volume]
    assert pod["spec"]["securityContext"]["fsGroup"] == pod["spec"]["securityContext"]["runAsUser"]  # reads mode 0440
    env = env_of(pod)
    assert env["LEAD_S3_CREDENTIALS"] == "webIdentity"
    assert env["LEAD_STS_ENDPOINT"] == ""
    assert env["LEAD_STS_ROLE_ARN"] == f"arn:{role}"


def test_the_role_and_the_sts_are_those_of_the_profile_for_the_namespace() -> None:
    profile = replace(
        BY_TOKEN,
        sts_endpoint="https://sts.example.com",
        role_arns={"team-a": {"run": "arn:a"}, "*": {"run": "arn:all"}},
    )
    env = env_of(a_pod("run", profile))
    assert (env["LEAD_STS_ENDPOINT"], env["LEAD_STS_ROLE_ARN"]) == ("https://sts.example.com", "arn:a")
    assert env_of(a_pod("build", profile))["LEAD_STS_ROLE_ARN"] == ""


@pytest.mark.parametrize("role", ["run", "build"])
def test_pods_name_the_bucket_as_the_profile_says(role: str) -> None:
    assert env_of(a_pod(role, PROFILE))["LEAD_S3_ADDRESSING"] == "path"
    assert env_of(a_pod(role, replace(PROFILE, addressing="virtualHost")))["LEAD_S3_ADDRESSING"] == "virtualHost"


def test_static_credentials_are_the_profiles_secret_or_that_of_builds() -> None:
    profile = replace(PROFILE, build_secret_name="lead-s3-builds")
    for role, secret in (("run", "lead-s3-default"), ("build", "lead-s3-builds")):
        pod = a_pod(role, profile)
        assert volumes_of(pod)["s3"] == {"name": "s3", "secret": {"secretName": secret, "defaultMode": 0o440}}
        assert "store-token" not in volumes_of(pod)
        assert env_of(pod)["LEAD_S3_CREDENTIALS"] == "static"
        assert "LEAD_STS_ENDPOINT" not in env_of(pod)


def test_the_authority_comes_from_its_config_map_beside_either() -> None:
    authority = {"configMap": {"name": "lead-store-ca", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
    by_token = a_pod("run", replace(BY_TOKEN, ca_config_map="lead-store-ca"))
    assert volumes_of(by_token)["s3"]["projected"] == {"defaultMode": 0o440, "sources": [authority]}
    assert mounts_of(by_token)["s3"]["mountPath"] == "/etc/lead/s3"
    static = a_pod("run", replace(PROFILE, ca_config_map="lead-store-ca"))
    secret = {"secret": {"name": "lead-s3-default"}}
    assert volumes_of(static)["s3"]["projected"] == {"defaultMode": 0o440, "sources": [secret, authority]}
