"""`helm test`: what it may, what it creates, and that the operator and the recipe would take it."""

from typing import Any

import yaml

from lead_operator.cli.smoke_run import SmokeRun
from lead_testing import PROJECT_ROOT

CHART = PROJECT_ROOT / "charts/lead"
TEST = "templates/tests/smoke-run.yaml"


def rendered(helm: Any, *options: str) -> list[dict[str, Any]]:
    place = ["--namespace", "lead-system", "--kube-version", "1.34.4", "-s", TEST]
    done = helm("template", "lead", str(CHART), *place, *options)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def one(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [each for each in objects if each["kind"] == kind]
    return found


def test_all_of_it_is_a_test_hook_and_goes_when_it_has_succeeded(helm: Any) -> None:
    for each in rendered(helm):
        annotations = each["metadata"]["annotations"]
        assert annotations["helm.sh/hook"] == "test"
        assert ("hook-succeeded" in annotations["helm.sh/hook-delete-policy"]) == (each["kind"] != "Pod"), each["kind"]


def test_it_may_create_read_and_delete_runs_and_caches_of_one_namespace(helm: Any) -> None:
    objects = rendered(helm, "--set", "runs.namespaces={team-a,team-b}")
    role, binding = one(objects, "Role"), one(objects, "RoleBinding")
    assert role["rules"] == [
        {
            "apiGroups": ["lead.dev"],
            "resources": ["trainingruns", "datasetcaches"],
            "verbs": ["create", "get", "delete"],
        }
    ]
    assert role["metadata"]["namespace"] == binding["metadata"]["namespace"] == "team-a"
    assert binding["subjects"][0]["namespace"] == "lead-system"
    assert one(objects, "Pod")["spec"]["containers"][0]["args"][2:4] == ["--namespace", "team-a"]


def test_two_tests_at_a_time_share_no_name(helm: Any) -> None:
    text = one(rendered(helm), "ConfigMap")["data"]["manifests.yaml"]
    first, second = SmokeRun.of(text, "team-a"), SmokeRun.of(text, "team-a")
    names = [each["metadata"]["name"] for each in (*first.manifests, *second.manifests)]
    assert len(set(names)) == 2, "the cache and the run of one test share a suffix"
    for test in (first, second):
        cache, run = test.manifests
        assert run["spec"]["datasets"] == [{"cacheRef": {"name": cache["metadata"]["name"]}}]


def test_it_can_be_left_out_and_take_other_data(helm: Any) -> None:
    done = helm("template", "lead", str(CHART), "-s", TEST, "--set", "smokeTest.enabled=false")
    assert "could not find template" in done.stderr
    objects = rendered(helm, "--set", "smokeTest.prefix=datasets/mine")
    cache = next(yaml.safe_load_all(one(objects, "ConfigMap")["data"]["manifests.yaml"]))
    assert cache["spec"]["source"] == {"prefix": "datasets/mine"}
