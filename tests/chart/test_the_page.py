"""The page in the chart: off by default, with rights that read, keys that read, and doors that the values open."""

import json
from pathlib import Path
from typing import Any

import pytest

from lead_ui.cluster.buckets import Buckets
from lead_ui.cluster.settings import read_ui_settings

Objects = list[dict[str, Any]]
REVIEWS = {"tokenreviews", "subjectaccessreviews"}  # are answered and not kept


def page_of(objects: Objects) -> dict[str, Any]:
    (found,) = [each for each in objects if each["kind"] == "Deployment" and each["metadata"]["name"] == "lead-ui"]
    return found["spec"]["template"]["spec"]


def test_it_is_off_by_default(render: Any) -> None:
    assert not [each for each in render() if "lead-ui" in each["metadata"]["name"]]


@pytest.mark.parametrize("values", ["defaults", "cluster_wide", "everything", "external_store"])
def test_its_account_reads_and_changes_nothing(render: Any, values: str) -> None:
    objects = render(values, "--set", "ui.enabled=true")
    roles = [each for each in objects if each["kind"] in ("Role", "ClusterRole") and "-ui" in each["metadata"]["name"]]
    rules = [rule for role in roles for rule in role["rules"]]
    assert rules
    for rule in rules:
        if set(rule["resources"]) <= REVIEWS:
            assert rule["verbs"] == ["create"]
        else:
            assert set(rule["verbs"]) <= {"get", "list", "watch"}
        assert "secrets" not in rule["resources"] and "*" not in rule["resources"]
    bound = [each for each in objects if each["kind"].endswith("RoleBinding") and "-ui" in each["metadata"]["name"]]
    assert {subject["name"] for each in bound for subject in each["subjects"]} == {"lead-ui"}
    assert page_of(objects)["serviceAccountName"] == "lead-ui"


def test_it_mounts_the_view_keys_and_no_other(render: Any) -> None:
    objects = render("everything")
    (secret,) = [each for each in objects if each["kind"] == "Secret" and each["metadata"]["name"] == "lead-ui-s3"]
    by_name = {(each["metadata"]["namespace"], each["metadata"]["name"]): each.get("data", {})
               for each in objects if each["kind"] == "Secret"}  # fmt: skip
    for namespace in ("team-a", "team-b"):
        for profile in ("default", "scratch"):
            for key in ("access-key", "secret-key"):
                given = by_name[namespace, f"lead-view-{profile}"][key]
                assert secret["data"][f"{profile}.{namespace}.{key}"] == given
    assert len(secret["data"]) == 8
    volumes = {volume["name"]: volume for volume in page_of(objects)["volumes"]}
    sources = volumes["s3"]["projected"]["sources"]
    assert {source["secret"]["name"] for source in sources if "secret" in source} == {
        "lead-ui-s3",
        "lead-s3-archive-ui",
    }
    assert "minio-credentials" not in json.dumps(volumes) and "operator-s3" not in json.dumps(volumes)


def test_what_the_chart_mounts_is_where_the_page_reads_it(render: Any, tmp_path: Path) -> None:
    """The variables and the folders of keys, as the page itself reads them."""
    objects = render("everything")
    (container,) = page_of(objects)["containers"]
    (profiles,) = [each for each in objects if each["metadata"]["name"] == "lead-storage-profiles"]
    (tmp_path / "profiles.json").write_text(profiles["data"]["profiles.json"])
    (tmp_path / "secret").write_text("sixteen-characters")
    (volume,) = [each for each in page_of(objects)["volumes"] if each["name"] == "s3"]
    for source in volume["projected"]["sources"]:
        for item in source.get("secret", {}).get("items", []):
            path = tmp_path / "s3" / item["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("key")
    environment = {each["name"]: each["value"] for each in container["env"]}
    here = {"LEAD_STORAGE_PROFILES_FILE": tmp_path / "profiles.json", "LEAD_UI_CREDENTIALS_DIR": tmp_path / "s3",
            "LEAD_UI_PROXY_SECRET_FILE": tmp_path / "secret"}  # fmt: skip
    assert set(here) <= set(environment)
    settings = read_ui_settings(environment | {name: str(path) for name, path in here.items()})
    assert settings.namespaces == ("team-a", "team-b") and settings.release == "Everything"
    assert settings.proxy is not None and settings.proxy.user == "X-Forwarded-User"
    buckets = Buckets(settings)
    for namespace in settings.namespaces:
        for profile in ("default", "scratch", "archive"):
            assert buckets.store(profile, namespace).url == settings.profiles[profile].url


def test_only_the_namespaces_that_the_values_name_connect_to_it(render: Any) -> None:
    for values, namespaces in (("defaults", []), ("everything", ["ingress"])):
        objects = render(values, "--set", "ui.enabled=true")
        (policy,) = [each["spec"] for each in objects
                     if each["kind"] == "NetworkPolicy" and each["metadata"]["name"] == "lead-ui"]  # fmt: skip
        sources = [peer["namespaceSelector"]["matchExpressions"][0]["values"] for rule in policy["ingress"]
                   for peer in rule["from"]]  # fmt: skip
        assert sources == ([namespaces] if namespaces else [])
        (service,) = [each for each in objects if each["kind"] == "Service" and each["metadata"]["name"] == "lead-ui"]
        assert "type" not in service["spec"]  # reached from inside the cluster alone
