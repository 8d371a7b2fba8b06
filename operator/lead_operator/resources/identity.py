"""Who a resource is: what every child points back to."""

from dataclasses import dataclass
from typing import Any

from lead_operator.errors import SpecError


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
