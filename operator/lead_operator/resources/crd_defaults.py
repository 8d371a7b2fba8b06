"""Fills a body's defaults out of the CRD files, where no API server does it: `render` and the unit tests.

It also refuses what the schema refuses for shape (unknown fields, wrong types), so that `render` and the API server
agree about a manifest; CEL rules are left to the API server.
"""

import copy
import difflib
import functools
import importlib.resources
import re
from pathlib import Path
from typing import Any

import yaml

from lead_operator.errors import SpecError

# Where PyYAML was built with libyaml, its loader takes an eighth of the time.
_LOADER: type[yaml.SafeLoader | yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


def crd_folder() -> Path:
    """Returns the folder of the CRD files: inside the installed package, else the one of the checkout."""
    packaged = Path(str(importlib.resources.files("lead_operator"))) / "_crds"
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[3] / "crds"


@functools.cache
def read_schema(kind: str) -> dict[str, Any]:
    """Reads the OpenAPI schema of one of our kinds; raises SpecError for another kind."""
    file = crd_folder() / f"{kind.lower()}.yaml"
    if not file.is_file():
        raise SpecError(f"kind {kind!r} is not one of ours; known are TrainingRun and DatasetCache")
    document = yaml.load(file.read_text(), Loader=_LOADER)
    schema: dict[str, Any] = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def fill_defaults(body: dict[str, Any]) -> dict[str, Any]:
    """Returns a copy of `body` with the CRD's defaults; raises SpecError for what the schema refuses."""
    filled = copy.deepcopy(body)
    kind = str(filled.get("kind", ""))
    owner = f"{kind} {(filled.get('metadata') or {}).get('name', '')}"
    schema = {**read_schema(kind), "properties": {**read_schema(kind)["properties"]}}
    schema["properties"]["metadata"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    _fill(filled, schema, owner, "")
    return filled


def _fill(value: Any, schema: dict[str, Any], owner: str, path: str) -> None:
    _check(value, schema, owner, path)
    if isinstance(value, dict) and "properties" in schema:
        _fill_object(value, schema, owner, path)
    elif isinstance(value, dict) and "additionalProperties" in schema:
        for key, entry in value.items():
            _fill(entry, schema["additionalProperties"], owner, f"{path}.{key}")
    elif isinstance(value, list) and "items" in schema:
        for index, entry in enumerate(value):
            _fill(entry, schema["items"], owner, f"{path}[{index}]")


def _fill_object(value: dict[str, Any], schema: dict[str, Any], owner: str, path: str) -> None:
    properties: dict[str, Any] = schema["properties"]
    for key in value:
        if key not in properties:
            near = difflib.get_close_matches(key, properties, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(properties))}"
            raise SpecError(f"{owner}: {_dotted(path, key)} is not a field; {remedy}")
    for key, child in properties.items():
        if key not in value and "default" in child:
            value[key] = copy.deepcopy(child["default"])
        if key in value:
            _fill(value[key], child, owner, _dotted(path, key))
    for key in schema.get("required", ()):
        if key not in value:
            raise SpecError(f"{owner}: {_dotted(path, key)} is missing; set it")


def _check(value: Any, schema: dict[str, Any], owner: str, path: str) -> None:
    if schema.get("x-kubernetes-int-or-string"):
        expected: tuple[type, ...] = (int, str)
    else:
        expected = _TYPES[schema["type"]]
    if not isinstance(value, expected) or (isinstance(value, bool) and bool not in expected):
        raise SpecError(f"{owner}: {path} is {value!r:.60}, expected {' or '.join(t.__name__ for t in expected)}")
    if "enum" in schema and value not in schema["enum"]:
        raise SpecError(f"{owner}: {path} is {value!r:.60}, expected one of {', '.join(schema['enum'])}")
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        raise SpecError(f"{owner}: {path} is {value!r:.60}, expected text that matches {schema['pattern']}")
    if isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        raise SpecError(f"{owner}: {path} is {value}, expected {schema.get('minimum')} to {schema.get('maximum')}")


def _dotted(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
