"""Reads typed values out of a resource body; used by the two parsers beside it and nobody else.

A body from the API server always fits, because the CRD's schema has seen it. A body from a file may not: then the
message names object and field.

Defaults of fields inside lists stand here, and the API server does not fill them in. One that it writes into an entry
of a list makes the stored list differ from the applied one: each `kubectl apply` of an unchanged file then reports
"configured", and a server-side apply by another manager conflicts. The CRDs state them in the fields' descriptions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from lead_operator.errors import SpecError

STAGE_DEFAULTS: Mapping[str, Any] = {"kind": "Train", "epochs": 31, "seeds": [0], "config": {}}
TOLERATION_DEFAULTS: Mapping[str, Any] = {"operator": "Equal", "value": ""}
T = TypeVar("T")

_UNITS = {
    "m": 1e-3,
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
}


@dataclass(frozen=True)
class Identity:
    """Name and UID of one custom resource, with the version of the spec that was read."""

    kind: str
    namespace: str
    name: str
    uid: str
    generation: int

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def parse_identity(body: dict[str, Any], kind: str) -> Identity:
    """Reads the identity of a body; raises SpecError where the kind is another or the name is missing."""
    if body.get("kind", kind) != kind:
        raise SpecError(f"the manifest is of kind {body.get('kind')!r}, expected {kind}")
    metadata = body.get("metadata") or {}
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise SpecError(f"{kind}: metadata.name is missing; set it")
    return Identity(
        kind=kind,
        namespace=metadata.get("namespace") or "default",
        name=name,
        uid=metadata.get("uid") or "",
        generation=int(metadata.get("generation") or 1),
    )


class Reader:
    """One object of a body with its path, for messages."""

    def __init__(self, value: Any, *, owner: str, path: str) -> None:
        if not isinstance(value, dict):
            raise SpecError(f"{owner}: {path} is {type(value).__name__}, expected an object; correct the manifest")
        self.value: dict[str, Any] = value
        self.owner = owner
        self.path = path

    def get(self, key: str, kind: type[T]) -> T:
        """Returns the value of `key`; raises SpecError where it is missing or of another type."""
        if key not in self.value:
            raise SpecError(f"{self.owner}: {self.path}.{key} is missing; set it")
        return self._typed(key, self.value[key], kind)

    def optional(self, key: str, kind: type[T]) -> T | None:
        """Returns the value of `key`, or None where it is absent."""
        if self.value.get(key) is None:
            return None
        return self._typed(key, self.value[key], kind)

    def text(self, key: str) -> str:
        """Returns the text at `key`; empty where it is absent."""
        return self.optional(key, str) or ""

    def child(self, key: str) -> "Reader":
        """Returns the object at `key`."""
        return Reader(self.get(key, dict), owner=self.owner, path=f"{self.path}.{key}")

    def children(self, key: str, defaults: Mapping[str, Any] | None = None) -> list["Reader"]:
        """Returns the objects in the list at `key`, with `defaults` for the fields that an entry leaves out."""
        readers = [
            Reader(entry, owner=self.owner, path=f"{self.path}.{key}[{i}]")
            for i, entry in enumerate(self.get(key, list))
        ]
        for reader in readers:
            reader.value = {**(defaults or {}), **reader.value}
        return readers

    def texts(self, key: str) -> dict[str, str]:
        """Returns the map at `key` with its values as text (quantities may be written as numbers)."""
        return {str(k): str(v) for k, v in self.get(key, dict).items()}

    def _typed(self, key: str, value: Any, kind: type[T]) -> T:
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            found = f"{value!r:.60}"
            raise SpecError(
                f"{self.owner}: {self.path}.{key} is {found}, expected {kind.__name__}; correct the manifest"
            )
        return value


def parse_quantity(quantity: str) -> float:
    """Returns a Kubernetes quantity such as 150m, 2 or 100Gi as a number: of cores or of bytes."""
    digits = quantity.rstrip("mkKMGTPi")
    return float(digits) * _UNITS[quantity[len(digits) :]]
