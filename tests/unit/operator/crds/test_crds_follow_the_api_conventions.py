"""Both CRDs keep the API conventions of Kubernetes; the rules are those of kube-api-linter, named in each test."""

import re
from typing import Any

import pytest
import yaml

from lead_operator.decisions.dataset_cache.plan import decide_dataset_cache
from lead_operator.decisions.observed import ObservedBuild, ObservedRun
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_operator.resources.crd_defaults import crd_folder, read_schema
from lead_testing.crd_fields import KINDS, crd_fields
from lead_testing.makers import NOW, SETTINGS, a_dataset_cache, a_training_run

LINE = 150  # columns; a regular expression is not wrapped


@pytest.mark.parametrize("kind", KINDS)
def test_every_list_says_how_two_writers_merge_it(kind: str) -> None:
    """Rule ssatags. What `self == oldSelf` fixes is atomic: of a set or a map, CEL would let the order change."""
    for path, field in crd_fields(read_schema(kind)):
        if field.get("type") != "array":
            continue
        merged = field.get("x-kubernetes-list-type")
        assert merged in ("atomic", "set", "map"), path
        assert (merged == "map") == ("x-kubernetes-list-map-keys" in field), path
        assert merged != "set" or field["items"]["type"] in ("string", "integer"), path


@pytest.mark.parametrize("kind", KINDS)
def test_every_whole_number_has_a_width(kind: str) -> None:
    """Rule integers."""
    for path, field in crd_fields(read_schema(kind)):
        if field.get("type") == "integer":
            assert field.get("format") in ("int32", "int64"), path
            assert field["format"] == "int64" or field.get("maximum", 0) < 2**31, path


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_in_camel_case_and_durations_in_seconds(kind: str) -> None:
    """Rules jsontags, nodurations and notimestamp."""
    for path, field in crd_fields(read_schema(kind)):
        name = path.rsplit(".", 1)[-1].rstrip("[]{}")
        assert re.fullmatch(r"[a-z][a-zA-Z0-9]*", name) or not path, path
        assert field.get("format") != "duration" and not name.lower().endswith("timestamp"), path


@pytest.mark.parametrize("kind", KINDS)
def test_no_field_with_a_default_is_required_and_none_is_nullable(kind: str) -> None:
    """Rules defaultorrequired and nonullable."""
    for path, field in crd_fields(read_schema(kind)):
        both = [key for key in field.get("required", ()) if "default" in field["properties"][key]]
        assert not both and "nullable" not in field, path


@pytest.mark.parametrize("kind", KINDS)
def test_conditions_are_those_of_metav1(kind: str) -> None:
    """Rule conditions."""
    conditions = read_schema(kind)["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    entry = conditions["items"]
    assert set(entry["required"]) == {"type", "status", "lastTransitionTime", "reason", "message"}
    assert set(entry["properties"]) == {*entry["required"], "observedGeneration"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_status_is_optional(kind: str) -> None:
    """Rules statusoptional and statussubresource; parts of it that were not seen yet are absent."""
    schema = read_schema(kind)
    assert "status" not in schema.get("required", ()) and "required" not in schema["properties"]["status"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_crd_file_is_in_block_style_with_one_fact_a_line(kind: str) -> None:
    text = (crd_folder() / f"{kind.lower()}.yaml").read_text()
    wide = [line for line in text.splitlines() if len(line) > LINE]
    flow = [line for line in text.splitlines() if re.search(r"^ *(- )?[\w-]+: [\[{](?!\}|\])", line)]
    assert wide == [] and flow == [] and not re.search(r": [&*]\w", text)


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_that_is_not_set_is_absent(kind: str) -> None:
    """Rules defaults and optionalfields: no empty text stands for "not set", save where Kubernetes gives it a sense."""
    for path, field in crd_fields(read_schema(kind)["properties"]["spec"]):
        empty = field.get("type") == "string" and not field.get("minLength") and "enum" not in field
        assert field.get("default") != "", path
        assert not empty or path.endswith((".storageClassName", ".value", "{}")), path


@pytest.mark.parametrize("kind", KINDS)
def test_a_reference_is_an_object_and_a_choice_is_in_camel_case(kind: str) -> None:
    """Rules norefs (a text that names an object ends with Name) and the conventions on constants."""
    for path, field in crd_fields(read_schema(kind)):
        if path.endswith("Ref"):
            assert field["type"] == "object" and field["required"] == ["name"], path
        reports = [*field.get("enum", ()), *([field["default"]] if isinstance(field.get("default"), str) else [])]
        if path.startswith(".spec") and not path.endswith(".storageProfile"):
            assert all(re.fullmatch(r"[A-Z][A-Za-z]+|[0-9].*", word) for word in reports), path


def status_of(kind: str) -> dict[str, Any]:
    schema: dict[str, Any] = read_schema(kind)["properties"]["status"]
    return schema


@pytest.mark.parametrize("kind", KINDS)
def test_no_number_of_a_status_is_a_float(kind: str) -> None:
    """Rule nofloats: a number is whole, in thousandths where it has to be; losses and metrics are decimal texts."""
    assert [path for path, field in crd_fields(status_of(kind)) if field.get("type") == "number"] == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_display_is_printed_by_a_column_and_no_column_prints_two(kind: str) -> None:
    """Numbers are numbers; the texts that are made of them stand in one object, and none that nothing shows."""
    crd = yaml.safe_load((crd_folder() / f"{kind.lower()}.yaml").read_text())
    columns = [each["jsonPath"] for each in crd["spec"]["versions"][0]["additionalPrinterColumns"]]
    assert len(set(columns)) == len(columns)
    printed = {path.removeprefix(".status.display.") for path in columns if path.startswith(".status.display.")}
    assert printed == set(status_of(kind)["properties"]["display"]["properties"])


@pytest.mark.parametrize("kind", KINDS)
def test_no_field_beside_display_is_a_text_for_people(kind: str) -> None:
    beside = {name: field for name, field in status_of(kind)["properties"].items() if name != "display"}
    found = [path for path, _ in crd_fields({"properties": beside}) if re.search(r"([a-z]Text|\.text)$", path)]
    assert found == []


def test_progress_and_checkpoint_of_a_run_stand_in_its_stages_alone() -> None:
    properties = status_of("TrainingRun")["properties"]
    assert {"progress", "checkpoint", "stage", "resumedFrom"}.isdisjoint(properties)
    entry = properties["stages"]["items"]["properties"]
    assert {"progress", "checkpoint", "restartState", "resumedFromStep"} <= set(entry)
    assert {"epoch", "epochs", "step", "loss"} <= set(entry["progress"]["properties"]) - set(entry)


@pytest.mark.parametrize("kind", KINDS)
def test_done_of_total_and_counts_of_a_status_are_whole_numbers(kind: str) -> None:
    """What counts is never a text: {done, total}, {kept, total}, bytes, milliseconds."""
    counts = ("done", "total", "kept", "hits", "misses", "corrupt")
    for path, field in crd_fields(status_of(kind)):
        name = path.rsplit(".", 1)[-1]
        if (name in counts and not path.endswith("workers[].done")) or name.endswith(("Bytes", "Milliseconds{}")):
            assert field["type"] == "integer", path


@pytest.mark.parametrize("kind", KINDS)
def test_a_choice_of_a_status_is_in_camel_case(kind: str) -> None:
    for path, field in crd_fields(status_of(kind)):
        assert all(re.fullmatch(r"([A-Z][a-z]+)+", value) for value in field.get("enum", ())), path
        assert "default" not in field, f"{path}: what was not seen yet is absent"


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_a_status_says_what_it_is_in_a_sentence(kind: str) -> None:
    """`kubectl explain` prints it: it begins with a capital, ends with a full stop, and refers to no other line."""
    for path, field in crd_fields(status_of(kind)):
        text = field.get("description")
        if text is None:
            assert path.endswith(("[]", "{}")), path
            continue
        assert re.match(r"[A-Z]", text) and text.endswith("."), path
        assert not re.match(r"(Both|The same) for people", text), path


def test_both_ends_of_a_resource_are_told_as_false_from_the_first_pass() -> None:
    """The conventions on conditions: a controller sets them at its first visit, so that absence means unknown."""
    run = decide_training_run(a_training_run(), ObservedRun(now=NOW), SETTINGS).status
    cache = decide_dataset_cache(a_dataset_cache(), ObservedBuild(now=NOW), SETTINGS).status
    told = [(c["type"], c["status"]) for status in (run, cache) for c in status["conditions"]]
    ends = [(kind, status) for kind, status in told if kind in ("Succeeded", "Failed")]
    assert ends == [("Succeeded", "False"), ("Failed", "False"), ("Failed", "False")]
    for status in (run, cache):
        assert all(c["reason"] and c["message"] and c["lastTransitionTime"] for c in status["conditions"])
