"""Both CRDs keep the API conventions of Kubernetes; the rules are those of kube-api-linter, named in each test."""

import re

import pytest

from lead_operator.resources.crd_defaults import crd_folder, read_schema
from lead_testing.crd_fields import KINDS, crd_fields

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
        words = [*field.get("enum", ()), *([field["default"]] if isinstance(field.get("default"), str) else [])]
        if path.startswith(".spec") and not path.endswith(".storageProfile"):
            assert all(re.fullmatch(r"[A-Z][A-Za-z]+|[0-9].*", word) for word in words), path
