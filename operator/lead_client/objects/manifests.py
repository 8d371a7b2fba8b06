"""The two objects that a user submits: a name, labels, and the spec as the CRD has it.

    TrainingRun("night", recipe="lead", preset="demo", datasets=[{"cache_ref": {"name": "towns"}}])

Fields are written in Python's way (`cache_ref`) or in the CRD's (`cacheRef`). Names and types are checked here, so that
a typo is found in the line that has it; limits and rules are the API server's to check.
"""

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, get_args

import yaml
from pydantic import ValidationError

from lead_client.errors import InvalidObject
from lead_client.objects.dataset_cache_spec import DatasetCacheSpec
from lead_client.objects.parts import SpecPart
from lead_client.objects.training_run_spec import TrainingRunSpec

API_VERSION = "lead.dev/v1alpha1"
MAX_FILE_BYTES = 2 * 1024 * 1024  # an object of the API server has 1.5 MiB at most
_EXPECTED = {
    "string_type": "text", "int_type": "a whole number", "bool_type": "True or False", "list_type": "a list",
    "dict_type": "a mapping", "model_type": "a mapping", "model_attributes_type": "a mapping",
}  # fmt: skip


class Manifest:
    """A named object with a spec; `TrainingRun` and `DatasetCache` are the two kinds."""

    kind: ClassVar[str]
    plural: ClassVar[str]
    spec_model: ClassVar[type[SpecPart]]

    def __init__(self, name: str, *, namespace: str = "", labels: Mapping[str, str] | None = None,
                 annotations: Mapping[str, str] | None = None, **spec: Any) -> None:  # fmt: skip
        """Takes the fields of the spec by name; raises InvalidObject naming each wrong one.

        `namespace`: empty means that of the cluster it is submitted to.
        """
        if not isinstance(name, str) or not name:
            raise InvalidObject(f"{self.kind}: metadata.name: found {name!r}, expected a name, such as night-drive")
        self.name, self.namespace = name, namespace
        self.labels, self.annotations = dict(labels or {}), dict(annotations or {})
        try:
            self.spec = self.spec_model.model_validate(spec)
        except ValidationError as error:
            faults = "; ".join(_fault(self.spec_model, detail) for detail in error.errors())
            raise InvalidObject(f"{self.kind} {name}: {faults}") from None

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Returns the object in a parsed manifest; raises InvalidObject."""
        found = {"apiVersion": document.get("apiVersion"), "kind": document.get("kind")}
        if found != {"apiVersion": API_VERSION, "kind": cls.kind}:
            raise InvalidObject(
                f"found apiVersion {found['apiVersion']!r}, kind {found['kind']!r}, expected {API_VERSION}, {cls.kind}"
            )
        metadata, spec = document.get("metadata") or {}, document.get("spec")
        if not isinstance(metadata, Mapping) or not isinstance(spec, Mapping):
            raise InvalidObject(f"{cls.kind}: metadata and spec must be mappings")
        named = {key: metadata[key] for key in ("namespace", "labels", "annotations") if metadata.get(key)}
        return cls(metadata.get("name", ""), **named, **{str(key): value for key, value in spec.items()})

    def document(self) -> dict[str, Any]:
        """Returns the manifest as `kubectl apply -f` takes it."""
        metadata = {"name": self.name, "namespace": self.namespace, "labels": self.labels,
                    "annotations": self.annotations}  # fmt: skip
        return {"apiVersion": API_VERSION, "kind": self.kind, "metadata": {k: v for k, v in metadata.items() if v},
                "spec": self.spec.document()}  # fmt: skip

    def to_yaml(self) -> str:
        """Returns the manifest as YAML."""
        return str(yaml.safe_dump(self.document(), sort_keys=False))

    def __repr__(self) -> str:
        """Returns kind and name."""
        return f"{self.kind}({self.name!r})"


class TrainingRun(Manifest):
    """Trains a recipe on dataset caches; `spec` is a `TrainingRunSpec`."""

    kind, plural, spec_model = "TrainingRun", "trainingruns", TrainingRunSpec
    spec: TrainingRunSpec


class DatasetCache(Manifest):
    """Builds what runs of a recipe train from; `spec` is a `DatasetCacheSpec`."""

    kind, plural, spec_model = "DatasetCache", "datasetcaches", DatasetCacheSpec
    spec: DatasetCacheSpec


KINDS: Mapping[str, type[Manifest]] = {kind.kind: kind for kind in (TrainingRun, DatasetCache)}


def read_manifests(path: str | Path) -> list[Manifest]:
    """Returns the TrainingRuns and DatasetCaches of a YAML file, in order; raises InvalidObject for anything else."""
    try:
        if Path(path).stat().st_size > MAX_FILE_BYTES:
            raise InvalidObject(f"{path} is larger than {MAX_FILE_BYTES} bytes, which no manifest is")
        documents = [each for each in yaml.safe_load_all(Path(path).read_text(encoding="utf-8")) if each is not None]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidObject(f"{path} cannot be read: {str(error).splitlines()[0]}") from error
    found = []
    for document in documents:
        kind = KINDS.get(str(document.get("kind"))) if isinstance(document, dict) else None
        if kind is None:
            named = document.get("kind") if isinstance(document, dict) else type(document).__name__
            raise InvalidObject(f"{path}: found kind {named!r}, expected {' or '.join(KINDS)}")
        found.append(kind.from_document(document))
    return found


def _fault(model: type[SpecPart], detail: Any) -> str:
    """Returns one of pydantic's errors as field, found, expected and, where there is one, the near match."""
    place, kind, found = [str(each) for each in detail["loc"]], detail["type"], detail["input"]
    field = "spec." + ".".join(place)
    if kind == "extra_forbidden":
        known = _names_beside(model, place[:-1])
        near = difflib.get_close_matches(place[-1], known, n=1)
        return f"{field}: unknown field{f'; did you mean {near[0]}?' if near else ''}"
    if kind == "missing":
        return f"{field}: required, and absent"
    if kind == "literal_error":
        return f"{field}: found {found!r}, expected {detail['ctx']['expected']}"
    return f"{field}: found {found!r}, expected {_EXPECTED.get(kind, detail['msg'])}"


def _names_beside(model: type[SpecPart], place: list[str]) -> list[str]:
    for name in place:
        by_name = {**model.model_fields, **{field.alias or key: field for key, field in model.model_fields.items()}}
        if name in by_name:
            model = next(_parts_in(by_name[name].annotation), model)
    return [name for key, field in model.model_fields.items() for name in (key, field.alias or key)]


def _parts_in(annotation: Any) -> Iterator[type[SpecPart]]:
    if isinstance(annotation, type) and not get_args(annotation) and issubclass(annotation, SpecPart):
        yield annotation
    for each in get_args(annotation):
        yield from _parts_in(each)
