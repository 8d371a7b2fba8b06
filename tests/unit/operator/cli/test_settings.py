"""The operator refuses to start with settings that would only fail later, and names the one that is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from lead_operator.errors import SettingsError
from lead_operator.settings import read_settings

PROFILE = {"endpoint": "minio.lead:9000", "secure": False, "bucket": "lead", "prefix": "/team/", "region": ""}


def environment(tmp_path: Path, profile: dict[str, Any], **extra: str) -> dict[str, str]:
    file = tmp_path / "profiles.json"
    file.write_text(json.dumps({"default": profile}))
    return {
        "LEAD_TRAINER_IMAGE": "trainer:1",
        "LEAD_STORAGE_PROFILES_FILE": str(file),
        "LEAD_RUN_NAMESPACES": "team-a, team-b",
    } | extra


def test_settings_are_read_once_from_the_environment(tmp_path: Path) -> None:
    settings = read_settings(environment(tmp_path, PROFILE, LEAD_PROGRESS_SECONDS="2.5"))
    assert settings.run_namespaces == ("team-a", "team-b")
    assert (settings.health_port, settings.resync_s, settings.relist_s, settings.progress_s) == (8080, 60.0, 600.0, 2.5)
    assert (settings.workers, settings.api_in_flight, settings.api_calls_per_second) == (16, 32, 0.0)
    profile = settings.storage_profiles["default"]
    assert (profile.url, profile.secret_name) == ("s3://lead/team", "lead-s3-default")
    assert profile.uri("runs/x") == "s3://lead/team/runs/x"


def test_a_star_means_every_namespace_and_stands_alone(tmp_path: Path) -> None:
    assert read_settings(environment(tmp_path, PROFILE, LEAD_RUN_NAMESPACES="*")).run_namespaces == ("",)
    with pytest.raises(SettingsError, match=r"expected names joined by commas, or \* alone for all"):
        read_settings(environment(tmp_path, PROFILE, LEAD_RUN_NAMESPACES="*,team-a"))


def test_a_profile_names_who_may_use_it_and_by_which_role(tmp_path: Path) -> None:
    arns = {"*": {"run": "arn:all:run"}, "team-a": {"build": "arn:a:build"}}
    own = {"credentials": "webIdentity", "stsEndpoint": "https://sts.example.com", "roleArns": arns}
    shared = {
        "shared": ["datasets/common", "weights/"],
        "namespaces": ["team-a"],
        "caConfigMap": "lead-store-ca-default",
    }
    profile = read_settings(environment(tmp_path, PROFILE | own | shared)).storage_profiles["default"]
    assert profile.shared == ("datasets/common/", "weights/")
    assert (profile.serves("team-a"), profile.serves("team-b")) == (True, False)
    assert profile.role_arn("team-a", "build") == "arn:a:build"
    assert profile.role_arn("team-a", "run") == profile.role_arn("team-b", "run") == "arn:all:run"
    assert profile.role_arn("team-b", "build") == ""


def test_a_bucket_may_be_part_of_the_host_name(tmp_path: Path) -> None:
    assert read_settings(environment(tmp_path, PROFILE)).storage_profiles["default"].addressing == "path"
    own = PROFILE | {"addressing": "virtualHost"}
    assert read_settings(environment(tmp_path, own)).storage_profiles["default"].addressing == "virtualHost"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"addressing": "virtual"}, "addressing is 'virtual', expected path or virtualHost"),
        ({"addressing": "virtualHost", "bucket": "my.data", "secure": True},
         "addressing is 'virtualHost', expected path, because the bucket my.data has a dot"),
        ({"endpoint": "http://minio:9000"}, "endpoint"),
        ({"endpoint": ""}, "endpoint"),
        ({"endpoint": "minio.svc.:9000"}, "endpoint"),  # what pods would refuse
        ({"endpoint": "-minio:9000"}, "endpoint"),
        ({"bucket": "Lead"}, "bucket"),
        ({"prefix": "a/../b"}, "prefix"),
        ({"secure": "yes"}, "secure"),
        ({"buckets": "x"}, "buckets"),
        ({"credentials": "none"}, "expected one of static, webIdentity"),
        ({"stsEndpoint": "sts.example.com"}, "stsEndpoint is 'sts.example.com', expected https://"),
        ({"roleArns": {"team-a": {"runs": "arn:aws:iam::1:role/lead"}}}, "roleArns of 'team-a'"),
        ({"shared": ["runs/team-a/"]}, "shared names 'runs/team-a/', expected a folder below datasets/ or weights/"),
        ({"shared": ["datasets/../runs"]}, "shared names"),
        ({"shared": "datasets/"}, "expected a list of text"),
        ({"namespaces": "team-a"}, "expected a list of text"),
    ],
)  # fmt: skip
def test_a_wrong_profile_is_named_with_its_key(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        read_settings(environment(tmp_path, PROFILE | change))


def test_concurrency_and_rate_are_settings(tmp_path: Path) -> None:
    asked = {"LEAD_WORKERS": "4", "LEAD_API_IN_FLIGHT": "8", "LEAD_API_CALLS_PER_SECOND": "12.5"}
    settings = read_settings(environment(tmp_path, PROFILE, **asked))
    assert (settings.workers, settings.api_in_flight, settings.api_calls_per_second) == (4, 8, 12.5)


def test_variables_of_pods_come_from_who_installed_the_chart(tmp_path: Path) -> None:
    given = environment(tmp_path, PROFILE, LEAD_POD_ENVIRONMENT='{"NCCL_SOCKET_IFNAME": "eth0"}')
    assert read_settings(given).pod_environment == {"NCCL_SOCKET_IFNAME": "eth0"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("NCCL_DEBUG=INFO", "is not JSON"),
        ('["NCCL_DEBUG"]', "expected an object of name to text"),
        ('{"NCCL_NTHREADS": 2}', "numbers stand in quotes"),
        ('{"nccl debug": "INFO"}', "names 'nccl debug', expected capitals"),
        ('{"LEAD_STORE_URL": "s3://mine"}', "names LEAD_STORE_URL, which the operator or the trainer sets itself"),
        ('{"LOCAL_WORLD_SIZE": "8"}', "names LOCAL_WORLD_SIZE, which"),
    ],
)
def test_wrong_variables_of_pods_are_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=f"^environment variable LEAD_POD_ENVIRONMENT, .*{said}"):
        read_settings(environment(tmp_path, PROFILE, LEAD_POD_ENVIRONMENT=text))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("LEAD_WORKERS", "0", "a whole number from 1 to 256"),
        ("LEAD_WORKERS", "2.5", "a whole number from 1 to 256"),
        ("LEAD_WORKERS", "many", "a whole number from 1 to 256"),
        ("LEAD_API_IN_FLIGHT", "257", "a whole number from 1 to 256"),
        ("LEAD_API_CALLS_PER_SECOND", "-1", "0 for no limit, or a number of at least 10"),
        ("LEAD_API_CALLS_PER_SECOND", "9", "0 for no limit, or a number of at least 10"),
        ("LEAD_API_CALLS_PER_SECOND", "nan", "0 for no limit, or a number of at least 10"),
        ("LEAD_HEALTH_PORT", "80.5", "a whole number from 1 to 65535"),
        ("LEAD_RELIST_SECONDS", "inf", "a number above 0"),
    ],
)
def test_a_wrong_number_is_named_with_what_is_expected(tmp_path: Path, name: str, value: str, expected: str) -> None:
    said = f"^environment variable {name} is {value!r}, expected {expected}$"
    with pytest.raises(SettingsError, match=said):
        read_settings(environment(tmp_path, PROFILE) | {name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LEAD_TRAINER_IMAGE", ""),
        ("LEAD_RUN_NAMESPACES", ""),
        ("LEAD_TRAINER_PULL_POLICY", "Sometimes"),
        ("LEAD_LOG_LEVEL", "LOUD"),
        ("LEAD_RESYNC_SECONDS", "often"),
        ("LEAD_PROGRESS_SECONDS", "0"),
        ("LEAD_STORAGE_PROFILES_FILE", "/nowhere/profiles.json"),
    ],
)
def test_a_wrong_variable_is_named(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        read_settings(environment(tmp_path, PROFILE) | {name: value})


def test_users_of_pods_are_those_of_the_images_unless_the_platform_chooses(tmp_path: Path) -> None:
    plain = read_settings(environment(tmp_path, PROFILE))
    assert plain.pod_security.context() == {"runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532}
    chosen = read_settings(environment(tmp_path, PROFILE, LEAD_POD_SECURITY='{"runAsUser": null, "fsGroup": 2000}'))
    assert chosen.pod_security.context() == {"fsGroup": 2000}


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"user": 1}', '{"runAsUser": "root"}', '{"fsGroup": true}', '{"fsGroup": -1}']
)
def test_a_wrong_pod_security_is_refused_by_its_chart_value(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match="the chart's podSecurity"):
        read_settings(environment(tmp_path, PROFILE, LEAD_POD_SECURITY=text))
