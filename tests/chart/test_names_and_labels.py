"""What an installer may rename, label and leave to the platform, and what it does to every object."""

from typing import Any

import pytest

from lead_testing.chart_values import CHART as CHART_FOLDER
from lead_testing.chart_values import expected

Render = Any
SWITCHES = ("exampleData.enabled", "tensorboard.enabled", "ui.enabled", "operator.serviceMonitor.enabled")
EVERYTHING = ("--set", ",".join(f"{switch}=true" for switch in SWITCHES) + ",operator.replicas=2")


def pod_templates(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each["spec"]["template"] for each in objects if each["kind"] in ("Deployment", "StatefulSet", "Job")]


def test_a_full_name_replaces_the_releases_in_every_name_and_reference(render: Render) -> None:
    plain = render("defaults", *EVERYTHING, release="zebra")
    named = render("defaults", *EVERYTHING, "--set", "fullnameOverride=okapi", release="zebra")
    names = {(each["kind"], each["metadata"]["name"]) for each in named}
    assert not [name for _, name in names if "zebra" in name]
    assert {kind for kind, _ in names} == {each["kind"] for each in plain}
    secrets = {each["metadata"]["name"] for each in named if each["kind"] == "Secret"}
    (store,) = [each for each in named if each["kind"] == "StatefulSet"]
    assert store["metadata"]["name"] == store["spec"]["serviceName"] == "okapi-minio"
    assert "okapi-minio-credentials" in secrets
    instances = {each["metadata"]["labels"]["app.kubernetes.io/instance"] for each in named}
    assert instances == {"zebra"}, "labels keep the release's name, by which helm finds its objects"


def test_labels_of_the_installer_are_on_every_object_and_pod_and_select_nothing(render: Render) -> None:
    objects = render("defaults", *EVERYTHING, "--set", "commonLabels.cost-centre=driving,nameOverride=trainer")
    for each in objects:
        assert each["metadata"]["labels"]["cost-centre"] == "driving", each["metadata"]["name"]
        selector = each["spec"].get("selector") if each["kind"] in ("Deployment", "StatefulSet", "Service") else None
        assert "cost-centre" not in str(selector)
    assert {each["metadata"]["labels"]["app.kubernetes.io/name"] for each in objects} == {"trainer"}


def test_the_operators_pods_take_labels_annotations_and_variables(render: Render) -> None:
    objects = render(
        "defaults", "--set", "operator.podLabels.team=platform,operator.podAnnotations.note=x",
        "--set-json", 'operator.extraEnv=[{"name":"HTTPS_PROXY","value":"http://proxy:3128"}]',
    )  # fmt: skip
    (operator,) = [each["spec"]["template"] for each in objects if each["kind"] == "Deployment"]
    assert operator["metadata"]["labels"]["team"] == "platform"
    assert operator["metadata"]["annotations"]["note"] == "x"
    assert {"name": "HTTPS_PROXY", "value": "http://proxy:3128"} in operator["spec"]["containers"][0]["env"]


@pytest.mark.parametrize("key", ["runAsUser", "runAsGroup", "fsGroup"])
def test_a_platform_that_chooses_users_is_left_to_choose(render: Render, key: str) -> None:
    objects = render("defaults", *EVERYTHING, "--set", f"podSecurity.{key}=null")
    for template in pod_templates(objects):
        context = template["spec"]["securityContext"]
        assert key not in context and context["runAsNonRoot"] is True
    (operator,) = [
        each for each in objects if each["metadata"]["name"] == "lead-operator" and each["kind"] == "Deployment"
    ]
    env = {each["name"]: each.get("value") for each in operator["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert f'"{key}"' not in env["LEAD_POD_SECURITY"]


def test_a_digest_pins_an_image(render: Render) -> None:
    digest = "sha256:" + "a" * 64
    objects = render("defaults", "--set", f"images.operator.digest={digest}")
    (operator,) = [each["spec"]["template"] for each in objects if each["kind"] == "Deployment"]
    assert operator["spec"]["containers"][0]["image"].endswith(f"@{digest}")


@pytest.mark.parametrize("page", ["values.yaml", "README.md"])
def test_a_page_of_values_is_what_schema_and_defaults_say(page: str) -> None:
    assert (CHART_FOLDER / page).read_text() == expected()[page], "run python -m lead_testing.chart_values --write"
