"""What a request to the API server is, read from its method and URL."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_PATH = re.compile(
    r"^/(?:api/v1|apis/[^/]+/[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/))?/(?P<resource>[^/]+)"
    r"(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[^/]+))?$"
)
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True)
class Call:
    """One request; `resource` is empty for what is not about objects (discovery)."""

    verb: str  # list, watch, get, create, update, patch, delete
    resource: str  # plural, with a subresource after a slash
    name: str = ""

    @property
    def site(self) -> str:
        """Names the kind of call, as plans do."""
        return f"{self.verb} {self.resource}"

    @property
    def writes(self) -> bool:
        """Tells whether the call may change an object that matters; the lease's heartbeat does not."""
        return self.verb in _VERBS.values() and self.resource != "leases"


def read_call(method: str, path: str, query: Mapping[str, str]) -> Call:
    """Returns what a request is."""
    found = _PATH.match(path)
    if found is None:
        return Call("get", "")
    resource, name = found["resource"], found["name"] or ""
    if method == "GET":
        if query.get("watch") in ("true", "1"):
            return Call("watch", resource)
        return Call("get" if name else "list", resource, name)
    subresource = f"/{found['subresource']}" if found["subresource"] else ""
    return Call(_VERBS.get(method, method.lower()), resource + subresource, name)
