"""Rules that the two CRD files keep, and what they promise to a reader."""

import copy
import importlib.util
import json
from typing import Any

import pytest
import yaml
from pydantic.alias_generators import to_camel

from lead_operator.cli.render import render, render_body
from lead_operator.errors import SpecError
from lead_operator.names import CachePhase, RunPhase
from lead_operator.resources.body import STAGE_DEFAULTS, TOLERATION_DEFAULTS
from lead_operator.resources.crd_defaults import crd_folder, fill_defaults, read_schema
from lead_protocol.job import CheckpointPolicy
from lead_testing.crd_fields import KINDS, crd_fields
from lead_testing.makers import a_dataset_cache, a_run_body, a_training_run


def version(kind: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((crd_folder() / f"{kind.lower()}.yaml").read_text())
    found: dict[str, Any] = document["spec"]["versions"][0]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_explained_and_bounded(kind: str) -> None:
    for path, schema in crd_fields(read_schema(kind)):
        named = not path.endswith(("]", "}")) and path not in ("", ".metadata")
        assert "description" in schema or not named, path
        if path in (".apiVersion", ".kind", ".metadata", ""):
            continue
        if schema.get("type") == "string" and "enum" not in schema and schema.get("format") != "date-time":
            assert "maxLength" in schema, path
        if schema.get("type") == "array":
            assert "maxItems" in schema, path
        if "additionalProperties" in schema or schema.get("x-kubernetes-preserve-unknown-fields"):
            assert "maxProperties" in schema, path


TAKEN = {"tr", "trs", "pr", "prs"}  # by Tekton's TaskRun and PipelineRun, which many a cluster for training has


@pytest.mark.parametrize(("kind", "short"), [("TrainingRun", "trun"), ("DatasetCache", "dsc")])
def test_the_short_name_is_not_one_of_tekton(kind: str, short: str) -> None:
    document = yaml.safe_load((crd_folder() / f"{kind.lower()}.yaml").read_text())
    assert document["spec"]["names"]["shortNames"] == [short] and short not in TAKEN


@pytest.mark.parametrize("kind", KINDS)
def test_no_word_of_a_description_is_taken_for_a_key(kind: str) -> None:
    known = {"type", "description", "properties", "required", "items", "additionalProperties", "default", "enum",
             "format", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems",
             "minProperties", "maxProperties"}  # fmt: skip
    for path, schema in crd_fields(read_schema(kind)):
        assert {key for key in schema if not key.startswith("x-kubernetes-")} <= known, path


@pytest.mark.parametrize("kind", KINDS)
def test_a_crd_file_is_small_enough_for_client_side_apply(kind: str) -> None:
    """`kubectl apply` keeps the object as JSON in an annotation; blanks and comments of the file do not count."""
    document = yaml.safe_load((crd_folder() / f"{kind.lower()}.yaml").read_text())
    assert len(json.dumps(document, separators=(",", ":"))) < 43_000


@pytest.mark.parametrize("kind", KINDS)
def test_every_column_prints_a_field_that_exists(kind: str) -> None:
    known = {path for path, _ in crd_fields(read_schema(kind))}
    for column in version(kind)["additionalPrinterColumns"]:
        assert column["jsonPath"] in known | {".metadata.creationTimestamp"}, column


def test_the_columns_are_those_people_were_promised() -> None:
    columns = {k: version(k)["additionalPrinterColumns"] for k in KINDS}
    names = {k: " ".join(c["name"] for c in columns[k] if not c.get("priority")) for k in KINDS}
    assert names == {
        "TrainingRun": "PHASE STAGE EPOCH LOSS RATE ETA CKPT RESTARTS AGE",
        "DatasetCache": "PHASE ROUTES SAMPLES SHARDS SIZE USED-BY DIGEST AGE",
    }
    wide = " ".join(c["name"] for c in columns["TrainingRun"] if c.get("priority"))
    assert wide == "STEP READY CACHE NODES RESUMED-FROM CLOSED-LOOP REASON"


def test_phases_in_the_schema_are_those_of_the_code() -> None:
    status = {k: read_schema(k)["properties"]["status"]["properties"]["phase"]["enum"] for k in KINDS}
    assert status == {"TrainingRun": [*RunPhase], "DatasetCache": [*CachePhase]}


@pytest.mark.parametrize("size", [0, -1])
def test_a_session_cache_has_a_size(size: int) -> None:
    with pytest.raises(SpecError, match=r"spec\.sessionCache\.sizeLimit"):
        fill_defaults(a_run_body(sessionCache={"sizeLimit": size}))


def test_every_message_of_a_rule_says_the_remedy() -> None:
    remedies = ("create", "set", "remove", "give", "correct", "use", "keep", "put", "name")
    for kind in KINDS:
        for path, schema in crd_fields(read_schema(kind)):
            for rule in schema.get("x-kubernetes-validations", ()):
                assert ";" in rule["message"], path
                assert rule["message"].split("; ", 1)[1].split()[0] in remedies, rule["message"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_choice_of_one_says_what_to_do_with_none_of_them_and_with_both(kind: str) -> None:
    rules = [rule for _, schema in crd_fields(read_schema(kind)) for rule in schema.get("x-kubernetes-validations", ())]
    choices = [rule["message"] for rule in rules if " != has(" in rule["rule"]]
    assert choices and all(message.endswith("; give one of them alone") for message in choices)


@pytest.mark.parametrize("example", sorted(p.name for p in (crd_folder() / "examples").glob("lead-*.yaml")))
def test_every_example_renders(example: str) -> None:
    objects = render(crd_folder() / "examples" / example)
    assert {o["kind"] for o in objects} >= {"Pod", "Service"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"node": 2}, "spec.node is not a field; did you mean nodes?"),
        ({"nodes": "two"}, "spec.nodes is 'two', expected int"),
        ({"nodes": 0}, "spec.nodes is 0, expected 1 to 256"),
        ({"recipe": "Lead!"}, "spec.recipe is 'Lead!', expected text that matches"),
        ({"cleanPodPolicy": "Some"}, "spec.cleanPodPolicy is 'Some', expected one of Running, All, None"),
    ],
)
def test_a_wrong_manifest_is_refused_with_its_field_and_a_remedy(change: dict[str, Any], message: str) -> None:
    body = a_run_body()
    body["spec"] |= change
    with pytest.raises(SpecError) as error:
        render_body(body)
    assert message in str(error.value)


def test_filling_defaults_leaves_the_given_body_alone() -> None:
    body = {"apiVersion": "lead.dev/v1alpha1", "kind": "TrainingRun", "metadata": {"name": "x"}}
    body["spec"] = {"recipe": "lead", "datasets": [{"cacheRef": {"name": "towns"}}]}
    before = copy.deepcopy(body)
    assert fill_defaults(body)["spec"]["stages"] == [{"name": "train"}]
    assert body == before


@pytest.mark.parametrize("kind", KINDS)
def test_no_field_inside_a_list_has_a_default_that_the_api_server_writes(kind: str) -> None:
    """It would make every `kubectl apply` of an unchanged file a change, and conflict with a second manager."""
    spec = read_schema(kind)["properties"]["spec"]
    assert [path for path, schema in crd_fields(spec) if "[]" in path and "default" in schema] == []


def test_fields_inside_lists_default_to_what_their_descriptions_state() -> None:
    run = a_training_run(stages=[{"name": "train"}], podOverrides={"tolerations": [{"key": "gpu"}]})
    (stage,) = run.stages
    assert (stage.epochs, stage.seeds, stage.config) == (31, (0,), {})
    assert run.pod_settings.tolerations == ({"key": "gpu", "operator": "Equal"},)
    assert a_dataset_cache(build={"tolerations": [{"key": "gpu"}]}).pod_settings == run.pod_settings
    for kind, item_defaults in (
        ("TrainingRun", {**STAGE_DEFAULTS, **TOLERATION_DEFAULTS}),
        ("DatasetCache", TOLERATION_DEFAULTS),
    ):
        stated = {
            path.rsplit(".", 1)[-1]: s
            for path, s in crd_fields(read_schema(kind)["properties"]["spec"])
            if "[]." in path
        }
        for name, value in item_defaults.items():
            word = json.dumps(value).strip('"') if value or value == 0 else ""
            assert "default" in stated[name]["description"] and word in stated[name]["description"], name


def test_no_field_reaches_into_another_namespace_or_the_host() -> None:
    forbidden = {"namespace", "hostPath", "hostNetwork", "privileged", "runAsUser", "serviceAccountName", "nodeName",
                 "endpoint", "image", "command", "env", "template"}  # fmt: skip
    for kind in KINDS:
        paths = [path for path, _ in crd_fields(read_schema(kind)["properties"]["spec"])]
        assert not {path.rsplit(".", 1)[-1] for path in paths if path not in SIMULATOR} & forbidden


SIMULATOR = {".closedLoop.image", ".closedLoop.command"}  # of a container without credentials, by policy.allowedImages


def test_operator_is_still_the_standard_library() -> None:
    found = importlib.util.find_spec("operator")
    assert found is not None and "lead" not in str(found.origin)


def test_a_job_has_the_crds_defaults_for_checkpoints() -> None:
    """Which `lead train` and tests take too, without a CRD."""
    fields = read_schema("TrainingRun")["properties"]["spec"]["properties"]["checkpoint"]["properties"]
    defaults = {key: field["default"] for key, field in fields.items() if "default" in field}
    assert {to_camel(name): value for name, value in CheckpointPolicy().model_dump().items()} == defaults
