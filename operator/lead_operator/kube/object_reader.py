"""Reads TrainingRuns and DatasetCaches from the API server's bytes, so that no object of a user can be too much.

Used by `kube.client` for every answer and event that holds one of them. Only what the operator reads is parsed: one
annotation, no managedFields, and of `config` what is small. What is too large or too deep becomes a Rejection beside
the metadata, which `controllers.reconciler` reports on the resource: it never fails the LIST or the watch that it came
with.

What is small and in order is parsed at once (`whole_document`), which takes a tenth of the time; all else is sliced,
and only slicing detects what is wrong. Both ways return the same of the same bytes.
"""

from typing import Any, Final

import orjson

from lead_operator.kube.kinds import KubernetesObject
from lead_operator.kube.whole_document import WholeDocument, nests_deeper, parse_whole, split_event, split_page
from lead_operator.names import Annotation
from lead_operator.resources.recipe_config import (
    MAX_CONFIG_BYTES,
    MAX_CONFIG_DEPTH,
    OmittedConfig,
    Rejection,
    config_sha256,
)
from lead_operator.resources.training_run import MAX_REQUEST
from lead_protocol.json_slices import JsonText

KEPT_CONFIG_BYTES: Final = 2 * 1024  # of all `config` of a resource together; beyond, they are omitted
MAX_METADATA_BYTES: Final = 8 * 1024  # of what is read: no labels, managedFields, ownerReferences
MAX_SPEC_BYTES: Final = 256 * 1024  # without `config`; the schema bounds every field, and all at their limits take half
MAX_STATUS_BYTES: Final = 512 * 1024  # 128 stage instances with all that the schema allows take half
SIZE: Final = "size"  # in bytes, of what is kept; as REJECTION
REJECTION: Final = "rejection"  # a key beside metadata, spec and status, which no API server sends

_METADATA: Final = (
    b"name", b"namespace", b"uid", b"resourceVersion", b"generation", b"creationTimestamp", b"deletionTimestamp"
)  # fmt: skip
_METADATA_KEYS: Final = tuple(key.decode() for key in _METADATA)
_IDENTITY: Final = (b"name", b"namespace", b"uid", b"resourceVersion")
_IDENTITY_KEYS: Final = tuple(key.decode() for key in _IDENTITY)
_TYPE: Final = (b"apiVersion", b"kind")
_TYPE_KEYS: Final = tuple(key.decode() for key in _TYPE)
_TEXT_BYTES: Final = 1024  # of a name, time or number, as JSON
_BYTES_A_CHARACTER: Final = 6  # at most, as JSON
_DO: Final = "delete the resource, or correct its manifest and apply it again"

Slices = dict[bytes, bytes]


class Unreadable(ValueError):
    """Bytes without metadata that can be understood: nobody knows whose they are."""


class _Rejected(Exception):
    """Carries a Rejection to where the object is put together."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.rejection = Rejection(reason, message)


def read_resource(raw: bytes, *, whole: bool = False) -> KubernetesObject:
    """Returns metadata, spec and status of a custom resource; under REJECTION why it is not served, if it is not.

    `whole`: with each `config`, as far as resources with it are served. Raises Unreadable.
    """
    document = parse_whole(raw)
    body = None if document is None else _pick(document, whole=whole)
    if body is None:
        body = _read(raw, whole=whole)
    try:
        return {**body, SIZE: len(orjson.dumps([body["metadata"], body["spec"], body["status"]]))}
    except TypeError:  # deeper than the schema lets anything but a `config` be, and than the operator could write
        rejection = Rejection("SpecUnreadable", f"spec or status nests too deep to be read; {_DO}")
        return {**body, "spec": {}, "status": {}, REJECTION: rejection, SIZE: 0}


def _pick(document: WholeDocument, *, whole: bool) -> KubernetesObject | None:
    """Returns what `_read` does of an object that is in order; None of any other, which `_read` judges."""
    found = document.value
    metadata, status, spec = found.get("metadata"), found.get("status", {}), found.get("spec", {})
    if not isinstance(metadata, dict) or not isinstance(spec, dict):
        return None
    kept = {key: metadata[key] for key in _METADATA_KEYS if key in metadata}
    if not {"name", "uid", "resourceVersion"} <= kept.keys() or not all(map(_is_short, kept.values())):
        return None
    if "finalizers" in metadata:
        kept["finalizers"] = finalizers = metadata["finalizers"]
        texts = isinstance(finalizers, list) and all(isinstance(each, str) for each in finalizers)
        if not texts or document.size(finalizers) > MAX_METADATA_BYTES:
            return None
    annotations = metadata.get("annotations")
    asked = annotations.get(Annotation.CLOSED_LOOP) if isinstance(annotations, dict) else None
    if isinstance(asked, str):
        kept["annotations"] = _asked(asked)
    picked = _pick_spec(document, spec, whole=whole)
    body = {key: found[key] for key in _TYPE_KEYS if key in found}
    body |= {"metadata": kept, "status": status if isinstance(status, dict) else {}}
    return None if picked is None else {**body, "spec": picked}


def _pick_spec(document: WholeDocument, spec: dict[str, Any], *, whole: bool) -> dict[str, Any] | None:
    stages = spec.get("stages", [])
    if not isinstance(stages, list) or not all(isinstance(stage, dict) for stage in stages):
        return None
    configs = [part["config"] for part in (spec, *stages) if "config" in part]
    if not all(isinstance(each, dict) and not nests_deeper(each, MAX_CONFIG_DEPTH) for each in configs):
        return None
    keep = whole or sum(map(document.size, configs)) <= KEPT_CONFIG_BYTES
    picked = _with_kept_config({key: value for key, value in spec.items() if key != "stages"}, keep=keep)
    if "stages" in spec:
        picked["stages"] = [_with_kept_config(stage, keep=keep) for stage in stages]
    return picked


def _is_short(value: Any) -> bool:
    """Returns whether a value is surely a name, time or number to `_text_or_number`."""
    if isinstance(value, str):
        return len(value) * _BYTES_A_CHARACTER + 2 <= _TEXT_BYTES
    return not isinstance(value, (dict, list))


def _read(raw: bytes, *, whole: bool) -> KubernetesObject:
    try:
        found = _slices(raw)
        metadata = _slices(found[b"metadata"])
        body: KubernetesObject = {key.decode(): orjson.loads(found[key]) for key in _TYPE if key in found}
        body["metadata"] = {key.decode(): _text_or_number(metadata[key]) for key in _METADATA if key in metadata}
        body["status"] = _read_status(found.get(b"status", b"{}"))
        if not {"name", "uid", "resourceVersion"} <= body["metadata"].keys():
            raise Unreadable(f"metadata of {sorted(body['metadata'])} alone")
    except (KeyError, ValueError, TypeError) as error:
        raise Unreadable(f"an object whose metadata cannot be read: {error!r}") from error
    try:
        if b"finalizers" in metadata:
            body["metadata"]["finalizers"] = _read_finalizers(metadata[b"finalizers"])
        if (asked := _read_request(metadata.get(b"annotations", b"null"))) is not None:
            body["metadata"]["annotations"] = _asked(asked)
        body["spec"], rejection = _read_spec(found.get(b"spec", b"{}"), whole=whole)
        return body if rejection is None else {**body, REJECTION: rejection}
    except _Rejected as rejected:
        return {**body, "spec": {}, REJECTION: rejected.rejection}
    except (ValueError, TypeError) as error:
        return {**body, "spec": {}, REJECTION: Rejection("SpecUnreadable", f"spec cannot be read: {error}; {_DO}")}


def read_identity(raw: bytes) -> KubernetesObject:
    """Returns who an object is: kind, namespace, name, UID and version; raises Unreadable."""
    document = parse_whole(raw)
    identity = None if document is None else _pick_identity(document.value)
    return _read_identity(raw) if identity is None else identity


def _pick_identity(found: dict[str, Any]) -> KubernetesObject | None:
    metadata = found.get("metadata")
    if not isinstance(metadata, dict) or not all(key in metadata for key in _IDENTITY_KEYS):
        return None
    body: KubernetesObject = {key: found[key] for key in _TYPE_KEYS if key in found}
    kept = {key: metadata[key] for key in _IDENTITY_KEYS}
    return {**body, "metadata": kept} if all(map(_is_short, (*body.values(), *kept.values()))) else None


def _read_identity(raw: bytes) -> KubernetesObject:
    try:
        found = _slices(raw)
        body: KubernetesObject = {key.decode(): _text_or_number(found[key]) for key in _TYPE if key in found}
        metadata = _slices(found[b"metadata"])
        body["metadata"] = {key.decode(): _text_or_number(metadata[key]) for key in _IDENTITY}
        return body
    except (KeyError, ValueError) as error:
        raise Unreadable(f"an object whose metadata cannot be read: {error!r}") from error


def read_page(raw: bytes) -> tuple[list[bytes], KubernetesObject]:
    """Returns the items of one page of a list, unread, and the page's own metadata; raises Unreadable."""
    if (parts := split_page(raw)) is not None:
        return parts
    try:
        text = JsonText(raw)
        found = {key: (start, end) for key, start, end in text.members()}
        items = [raw[start:end] for start, end in text.elements(found[b"items"][0])]
        start, end = found[b"metadata"]
        return items, orjson.loads(raw[start:end])
    except (KeyError, ValueError) as error:
        raise Unreadable(f"a list that cannot be read: {error!r}") from error


def read_event(raw: bytes) -> tuple[str, bytes]:
    """Returns type and object, unread, of one event of a watch; raises Unreadable."""
    if (parts := split_event(raw)) is not None:
        return parts
    try:
        found = _slices(raw)
        return orjson.loads(found[b"type"]), found[b"object"]
    except (KeyError, ValueError) as error:
        raise Unreadable(f"an event that cannot be read: {error!r}") from error


def _slices(raw: bytes) -> Slices:
    return {key: raw[start:end] for key, start, end in JsonText(raw).members()}


def _text_or_number(raw: bytes) -> Any:
    if raw[:1] in (b"{", b"[") or len(raw) > _TEXT_BYTES:
        raise ValueError(f"{raw[:40]!r} is no name, time or number")
    return orjson.loads(raw)


def _read_request(raw: bytes) -> str | None:
    """Returns the value of the one annotation that is read; None where it is not there."""
    found = _slices(raw).get(Annotation.CLOSED_LOOP.encode(), b"") if raw[:1] == b"{" else b""
    return str(orjson.loads(found)) if found[:1] == b'"' else None


def _asked(value: str) -> dict[str, str]:
    return {Annotation.CLOSED_LOOP: value[:MAX_REQUEST]}


def _read_finalizers(raw: bytes) -> list[str]:
    if len(raw) > MAX_METADATA_BYTES:
        text = f"metadata.finalizers takes {len(raw)} bytes, expected at most {MAX_METADATA_BYTES}; remove some"
        raise _Rejected("MetadataTooLarge", text)
    found = orjson.loads(raw)
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def _read_status(raw: bytes) -> dict[str, Any]:
    """Returns a status; none of one that no operator wrote: it is rebuilt as one that was erased."""
    try:
        found = orjson.loads(raw) if len(raw) <= MAX_STATUS_BYTES else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _read_spec(raw: bytes, *, whole: bool) -> tuple[dict[str, Any], Rejection | None]:
    """Returns a spec and why it is not served; a `config` that is the reason is left out, and all else is there."""
    found = _slices(raw)
    stages = [_slices(stage) for stage in _elements(found.pop(b"stages"))] if b"stages" in found else None
    configs = [("spec.config", found.pop(b"config"))] if b"config" in found else []
    staged = {i: s.pop(b"config") for i, s in enumerate(stages or ()) if b"config" in s}
    every = (*configs, *((f"spec.stages[{i}].config", config) for i, config in staged.items()))
    size = sum(len(key) + len(value) for part in (found, *(stages or ())) for key, value in part.items())
    if size > MAX_SPEC_BYTES:
        text = f"spec without config takes {size} bytes, expected at most {MAX_SPEC_BYTES}; {_DO}"
        raise _Rejected("SpecTooLarge", text)
    rejection = next(filter(None, (_fault(path, config) for path, config in every)), None)
    keep = whole or sum(len(config) for _, config in every) <= KEPT_CONFIG_BYTES

    def read(config: bytes) -> dict[str, Any]:
        return OmittedConfig("") if rejection is not None else _config(config, keep=keep)

    spec = _loads(found)
    if configs:
        spec["config"] = read(configs[0][1])
    if stages is not None:
        spec["stages"] = [_loads(stage) for stage in stages]
        for i, config in staged.items():
            spec["stages"][i]["config"] = read(config)
    return spec, rejection


def _elements(raw: bytes) -> list[bytes]:
    return [raw[start:end] for start, end in JsonText(raw).elements()]


def _loads(found: Slices) -> dict[str, Any]:
    values: dict[str, Any] = orjson.loads(b"{" + b",".join(b'"%b":%b' % each for each in found.items()) + b"}")
    return values


def _fault(path: str, raw: bytes) -> Rejection | None:
    """Returns why a resource with this `config` is not served, None where it is."""
    if len(raw) > MAX_CONFIG_BYTES:
        text = (
            f"{path} takes {len(raw)} bytes as JSON, expected at most {MAX_CONFIG_BYTES}; leave out what is no key of "
            "the recipe, and put data into the object store"
        )
        return Rejection("ConfigTooLarge", text)
    if (depth := JsonText(raw).depth()) > MAX_CONFIG_DEPTH:
        text = f"{path} nests {depth} levels deep, expected at most {MAX_CONFIG_DEPTH}; no recipe has such keys; {_DO}"
        return Rejection("ConfigTooDeep", text)
    return None


def _config(raw: bytes, *, keep: bool) -> dict[str, Any]:
    values = orjson.loads(raw)
    if not isinstance(values, dict):
        raise ValueError(f"config is {type(values).__name__}, expected an object")
    return values if keep else OmittedConfig(config_sha256(values))


def _with_kept_config(part: dict[str, Any], *, keep: bool) -> dict[str, Any]:
    """Returns a spec or a stage with its `config`, where it has one, as it is kept."""
    kept = {key: value for key, value in part.items() if key != "config"}
    if "config" in part:
        kept["config"] = part["config"] if keep else OmittedConfig(config_sha256(part["config"]))
    return kept
