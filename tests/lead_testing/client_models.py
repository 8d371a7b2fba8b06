"""Writes the typed objects of `lead_client` from the CRDs: `python -m lead_testing.client_models`.

They hold names, types and closed lists. Limits and rules stay in the CRD alone: the API server checks them, and its
message is what a user reads. A spec rejects unknown names; a status ignores those of a newer operator.
"""

import copy
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from lead_testing import PROJECT_ROOT

FOLDER = PROJECT_ROOT / "operator/lead_client/objects"
KINDS = {"TrainingRun": "trainingrun.yaml", "DatasetCache": "datasetcache.yaml"}
PARTS = {"spec": "SpecPart", "status": "StatusPart"}
_KEPT = ("type", "enum", "properties", "required", "items", "additionalProperties", "description")
_HEAD = '"""{part} of a {kind}: generated from crds/{crd} by `python -m lead_testing.client_models`; do not edit."""\n'


def write_models() -> list[Path]:
    """Writes one module per kind and part; returns their paths."""
    written = []
    for path, text in models().items():
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def models() -> Mapping[Path, str]:
    """Returns the text of each generated module by its path."""
    found = {}
    for kind, crd in KINDS.items():
        document = yaml.safe_load((PROJECT_ROOT / "crds" / crd).read_text(encoding="utf-8"))
        schema = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        for part, base in PARTS.items():
            stem = "training_run" if kind == "TrainingRun" else "dataset_cache"
            head = _HEAD.format(part=part.capitalize(), kind=kind, crd=crd)
            text = _generated(simplified(schema[part], part), f"{kind}{part.capitalize()}", base)
            found[FOLDER / f"{stem}_{part}.py"] = _formatted(head + text)
    return found


def simplified(schema: Mapping[str, Any], part: str) -> dict[str, Any]:
    """Returns a schema with names, types and closed lists alone; a default becomes a sentence of the description."""
    if schema.get("x-kubernetes-int-or-string"):
        kept: dict[str, Any] = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
        if "description" in schema:
            kept["description"] = schema["description"]
    else:
        kept = {key: copy.deepcopy(schema[key]) for key in _KEPT if key in schema}
    if schema.get("x-kubernetes-preserve-unknown-fields") and "properties" not in kept:
        kept["additionalProperties"] = True
    if "properties" in kept:
        kept["properties"] = {name: simplified(below, part) for name, below in kept["properties"].items()}
    if isinstance(kept.get("items"), dict):
        kept["items"] = simplified(kept["items"], part)
    if isinstance(kept.get("additionalProperties"), dict):
        kept["additionalProperties"] = simplified(kept["additionalProperties"], part)
    if part == "spec" and isinstance(schema.get("default"), str | int | bool):
        kept["description"] = f"{kept.get('description', '')} Default: {schema['default']}.".strip()
    if part == "status":
        kept.pop("required", None)  # of a status that an older operator wrote, anything may be absent
        kept.pop("enum", None)  # and a newer one may have more values
    return kept


def _generated(schema: Mapping[str, Any], name: str, base: str) -> str:
    from datamodel_code_generator import InputFileType, LiteralType, PythonVersion, generate
    from datamodel_code_generator.enums import DataModelType

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of formatters: ruff formats what it writes
        output = Path(folder) / "models.py"
        generate(
            json.dumps(schema),
            input_file_type=InputFileType.JsonSchema,
            output=output,
            output_model_type=DataModelType.PydanticV2BaseModel,
            base_class=f"lead_client.objects.parts.{base}",
            class_name=name,
            snake_case_field=True,
            enum_field_as_literal=LiteralType.All,
            use_schema_description=True,
            use_field_description=True,
            use_standard_collections=True,
            use_union_operator=True,
            use_title_as_name=False,
            target_python_version=PythonVersion.PY_311,
            disable_timestamp=True,
            custom_file_header="# One class a mapping of the schema.",
            no_alias=True,
        )
        return output.read_text(encoding="utf-8")


def _formatted(text: str) -> str:
    ruff = [str(Path(sys.executable).with_name("ruff"))]
    for words in (["check", "--fix-only", "--quiet", "--select", "I,UP,F401"], ["format", "--quiet"]):
        command = [*ruff, *words, "--stdin-filename", str(FOLDER / "generated.py"), "-"]
        text = subprocess.run(command, input=text, text=True, capture_output=True, check=True, cwd=PROJECT_ROOT).stdout
    return text


if __name__ == "__main__":
    for path in write_models():
        print(path.relative_to(PROJECT_ROOT))
