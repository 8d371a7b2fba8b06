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
    profile = settings.storage_profiles["default"]
    assert (profile.url, profile.secret_name) == ("s3://lead/team", "lead-s3-default")
    assert profile.uri("runs/x") == "s3://lead/team/runs/x"


def test_a_star_means_every_namespace_and_stands_alone(tmp_path: Path) -> None:
    assert read_settings(environment(tmp_path, PROFILE, LEAD_RUN_NAMESPACES="*")).run_namespaces == ("",)
    with pytest.raises(SettingsError, match=r"expected names joined by commas, or \* alone for all"):
        read_settings(environment(tmp_path, PROFILE, LEAD_RUN_NAMESPACES="*,team-a"))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"endpoint": "http://minio:9000"}, "endpoint"),
        ({"endpoint": ""}, "endpoint"),
        ({"endpoint": "minio.svc.:9000"}, "endpoint"),  # what pods would refuse
        ({"endpoint": "-minio:9000"}, "endpoint"),
        ({"bucket": "Lead"}, "bucket"),
        ({"prefix": "a/../b"}, "prefix"),
        ({"secure": "yes"}, "secure"),
        ({"buckets": "x"}, "buckets"),
    ],
)
def test_a_wrong_profile_is_named_with_its_key(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        read_settings(environment(tmp_path, PROFILE | change))


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
