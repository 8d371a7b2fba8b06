"""A custom resource as the API server holds it, but for its spec: read once at the beginning of a pass.

Made by `controllers.reconciler`, which gives the spec to the parser of its kind; nobody else sees the JSON of both.
"""

from dataclasses import dataclass
from typing import Any

from lead_operator.resources.body import Identity, parse_identity
from lead_operator.resources.status_format import JsonObject


@dataclass(frozen=True)
class Stored:
    """Who a resource is, in which version, and what its status holds."""

    identity: Identity
    version: str  # the resourceVersion, for compare-and-swap
    created_at: str  # RFC 3339; empty: not known
    finalizers: tuple[str, ...]
    deleted: bool  # it goes once its finalizers have gone
    status: JsonObject


def read_stored(body: dict[str, Any], kind: str) -> Stored:
    """Reads a body of the API server; raises SpecError where it is of another kind or has no name."""
    metadata = body["metadata"]
    return Stored(
        identity=parse_identity(body, kind),
        version=metadata["resourceVersion"],
        created_at=metadata.get("creationTimestamp", ""),
        finalizers=tuple(metadata.get("finalizers", ())),
        deleted="deletionTimestamp" in metadata,
        status=body.get("status", {}),
    )
