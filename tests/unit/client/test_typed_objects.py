"""The typed objects are the CRDs' and nothing else; a typo is found in the line that has it."""

from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from lead_client import DatasetCache, TrainingRun, read_manifests
from lead_client.errors import InvalidObject
from lead_client.objects.parts import SpecPart, StatusPart
from lead_client.objects.training_run_status import TrainingRunStatus
from lead_operator.names import Label
from lead_operator.resources.crd_defaults import read_schema
from lead_testing import PROJECT_ROOT
from lead_testing.client_models import KINDS, models

EXAMPLES = sorted((PROJECT_ROOT / "crds/examples").glob("*.yaml"))
SMALLEST: dict[str, Any] = {"recipe": "lead", "datasets": [{"cache_ref": {"name": "towns"}}]}


def test_the_generated_modules_are_current() -> None:
    renew = "run `PYTHONPATH=tests .venv/bin/python -m lead_testing.client_models`"
    for path, text in models().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: {renew}"


def below(model: Any) -> list[type[SpecPart | StatusPart]]:
    if isinstance(model, type) and not get_args(model) and issubclass(model, SpecPart | StatusPart):
        return [model]
    return [each for argument in get_args(model) for each in below(argument)]


def names(model: type[SpecPart | StatusPart]) -> Any:
    """Returns the names that a model writes, as a tree."""
    return {
        field.alias: next((names(each) for each in below(field.annotation)), None)
        for field in model.model_fields.values()
    }


def names_of_schema(schema: dict[str, Any]) -> Any:
    schema = schema.get("items", schema)
    return {name: names_of_schema(each) for name, each in schema.get("properties", {}).items()} or None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", ["spec", "status"])
def test_a_model_writes_every_name_of_its_crd_and_no_other(kind: str, part: str) -> None:
    module = {"TrainingRun": "training_run", "DatasetCache": "dataset_cache"}[kind]
    model = getattr(__import__(f"lead_client.objects.{module}_{part}", fromlist=["x"]), f"{kind}{part.capitalize()}")
    assert names(model) == names_of_schema(read_schema(kind)["properties"][part])


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_read_and_written_back_unchanged(example: Path) -> None:
    documents = [each for each in yaml.safe_load_all(example.read_text()) if each]
    assert [each.document() for each in read_manifests(example)] == documents


def test_names_are_pythons_or_the_crds_and_what_is_absent_stays_absent() -> None:
    ours = TrainingRun("night", **SMALLEST, checkpoint={"from_": "s3://b/x"}, config={"key": None})
    theirs = TrainingRun("night", recipe="lead", datasets=[{"cacheRef": {"name": "towns"}}],
                         checkpoint={"from": "s3://b/x"}, config={"key": None})  # fmt: skip
    assert ours.document() == theirs.document()
    assert ours.document()["spec"] == {
        "recipe": "lead", "config": {"key": None}, "datasets": [{"cacheRef": {"name": "towns"}}],
        "checkpoint": {"from": "s3://b/x"},
    } and list(ours.document()["metadata"]) == ["name"]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"dataset": []}, "spec.dataset: unknown field; did you mean datasets?"),
        ({"stages": [{"name": "a", "epoch": 3}]}, "spec.stages.0.epoch: unknown field; did you mean epochs?"),
        ({"checkpoint": {"keepLst": 3}}, "spec.checkpoint.keepLst: unknown field; did you mean keepLast?"),
        ({"nodes": "2"}, "spec.nodes: found '2', expected a whole number"),
        ({"nodes": 2.5}, "spec.nodes: found 2.5, expected a whole number"),
        ({"suspend": "no"}, "spec.suspend: found 'no', expected True or False"),
        ({"recipe": None}, "spec.recipe: found None, expected text"),
        ({"datasets": {"name": "x"}}, "spec.datasets: found {'name': 'x'}, expected a list"),
        ({"datasets": [{}]}, "spec.datasets.0.cacheRef: required, and absent"),
        ({"stages": [{"epochs": 3}]}, "spec.stages.0.name: required, and absent"),
        ({"cleanPodPolicy": "Never"}, "spec.cleanPodPolicy: found 'Never', expected 'Running', 'All' or 'None'"),
        ({"config": "x"}, "spec.config: found 'x', expected a mapping"),
        ({"podTemplate": {}}, "spec.podTemplate: unknown field"),
    ],
)
def test_a_mistake_is_named_with_object_field_found_and_expected(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidObject) as caught:
        TrainingRun("night", **{**SMALLEST, **changes})
    assert str(caught.value) == f"TrainingRun night: {sentence}"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [", "cannot be read"),
        ("kind: Pod", "found kind 'Pod', expected TrainingRun or DatasetCache"),
        ("[1, 2]", "found kind 'list'"),
        ("{kind: TrainingRun, apiVersion: lead.dev/v9}", "found apiVersion 'lead.dev/v9'"),
        ("{kind: TrainingRun, apiVersion: lead.dev/v1alpha1, metadata: [], spec: 3}", "must be mappings"),
        ("{kind: TrainingRun, apiVersion: lead.dev/v1alpha1, spec: {}}", "metadata.name: found ''"),
        ("x" * 3_000_000, "larger than"),
        ("a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a]\nkind: [*b,*b,*b,*b,*b,*b]", "found kind"),
    ],
    ids=range(8),
)
def test_a_file_that_is_no_manifest_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(InvalidObject, match=sentence.replace("[", r"\[")):
        read_manifests(tmp_path / "run.yaml")


def test_a_status_of_a_newer_operator_is_read() -> None:
    status = TrainingRunStatus.model_validate({"phase": "Dreaming", "later": {"x": 1}, "stages": [{"name": "train"}]})
    assert status.phase == "Dreaming" and status.stages is not None and status.stages[0].seed is None


def test_the_label_of_a_runs_pods_is_the_operators() -> None:
    from lead_client.cluster.cluster import RUN_LABEL

    assert RUN_LABEL == Label.RUN
    assert repr(DatasetCache("towns", recipe="lead", source={"prefix": "datasets/x"})) == "DatasetCache('towns')"
