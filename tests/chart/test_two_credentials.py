"""With a store of your own, pods and operator may have a key each: only the operator's need delete."""

import json
from collections.abc import Callable
from typing import Any

import pytest

OWN_STORE = "endpoint=s3.example.com,storage.profiles.default.existingSecret=lead-s3-pods"


def profiles(objects: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = [each for each in objects if each["metadata"]["name"] == "lead-storage-profiles"]
    read: dict[str, Any] = json.loads(found["data"]["profiles.json"])
    return read


def mounted_by_the_operator(objects: list[dict[str, Any]]) -> dict[str, str]:
    (operator,) = [each for each in objects if each["kind"] == "Deployment"]
    volumes = operator["spec"]["template"]["spec"]["volumes"]
    return {
        volume["name"]: source["secret"]["name"]
        for volume in volumes
        if "projected" in volume
        for source in volume["projected"]["sources"]
        if "secret" in source
    }


def test_the_operator_mounts_its_own_secret_and_pods_never_do(render: Any) -> None:
    objects = render("two_credentials")
    assert mounted_by_the_operator(objects) == {"s3-default": "lead-s3-deletes"}
    assert profiles(objects)["default"]["secretName"] == "lead-s3-pods"
    named = profiles(objects)["default"]
    assert named.pop("operatorSecret") == "lead-system/lead-s3-deletes"  # for messages
    assert "lead-s3-deletes" not in json.dumps(named)


def test_without_a_secret_of_its_own_the_operator_mounts_the_one_of_its_namespace(render: Any) -> None:
    objects = render("external_store")
    assert mounted_by_the_operator(objects) == {"s3-default": "lead-s3-driving"}
    assert profiles(objects)["default"]["secretName"] == "lead-s3-driving"


def test_the_notes_warn_where_pods_and_operator_share_a_secret(notes: Callable[..., str]) -> None:
    text = notes("defaults", "--set", f"storage.profiles.default.{OWN_STORE},minio.enabled=false")
    assert "WARNING: storage.profiles.default: pods and operator share the Secret lead-s3-pods of lead-system." in text
    assert "--set storage.profiles.default.operatorSecret=" in text
    # Secrets of one name in two namespaces are two; the embedded store's are two by name.
    for apart in ("external_store", "two_credentials", "defaults", "everything"):
        assert "share the Secret" not in notes(apart), apart


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("operatorSecret=lead-s3-deletes", "drop operatorSecret"),
        (f"{OWN_STORE},storage.profiles.default.operatorSecret=lead-s3-pods", "name another Secret"),
        (f"{OWN_STORE},storage.profiles.default.operatorSecret=lead-s3-more,storage.profiles.more.bucket=more",
         "which pods mount for the profile more"),
        ("operatorSecret=kube-root", "/storage/profiles/default/operatorSecret"),
    ],
)  # fmt: skip
def test_a_secret_that_pods_mount_is_not_taken_for_the_operators_own(helm: Any, settings: str, said: str) -> None:
    chosen = f"storage.profiles.default.{settings}"
    done = helm("template", "lead", "charts/lead", "--kube-version", "1.34.4", "--set", chosen)
    assert done.returncode != 0
    assert said in done.stderr
