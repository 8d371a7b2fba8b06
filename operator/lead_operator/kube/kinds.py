"""The kinds the operator reads or writes, and their paths in the API; data only."""

from dataclasses import dataclass
from typing import Any

from lead_operator import names

KubernetesObject = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """One kind of the API."""

    kind: str
    plural: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """What stands in the object's apiVersion."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Returns the URL path of a collection (no name) or of one object."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/" + "/".join(parts)


TRAINING_RUN = Kind(names.TRAINING_RUN_KIND, "trainingruns", names.GROUP, names.VERSION)
DATASET_CACHE = Kind(names.DATASET_CACHE_KIND, "datasetcaches", names.GROUP, names.VERSION)
POD = Kind("Pod", "pods")
SERVICE = Kind("Service", "services")
CLAIM = Kind("PersistentVolumeClaim", "persistentvolumeclaims")
NODE = Kind("Node", "nodes", namespaced=False)
EVENT = Kind("Event", "events")
TOKEN_REVIEW = Kind("TokenReview", "tokenreviews", "authentication.k8s.io", namespaced=False)
SUBJECT_ACCESS_REVIEW = Kind("SubjectAccessReview", "subjectaccessreviews", "authorization.k8s.io", namespaced=False)
LEASE = Kind("Lease", "leases", "coordination.k8s.io")

CUSTOM_KINDS = (TRAINING_RUN, DATASET_CACHE)  # what anybody may write whatever they like into

_BY_NAME = {kind.kind: kind for kind in (TRAINING_RUN, DATASET_CACHE, POD, SERVICE, CLAIM, NODE, EVENT, LEASE)}


def kind_of(body: KubernetesObject) -> Kind:
    """Returns the kind of a complete object; raises KeyError for one that the operator never makes."""
    return kind_named(body["kind"])


def kind_named(name: str) -> Kind:
    """Returns the kind of a name; raises KeyError for one that the operator does not know."""
    return _BY_NAME[name]


@dataclass(frozen=True, order=True)
class ResourceKey:
    """Names one custom resource in the work queue: small, hashable, without state."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def key_of(body: KubernetesObject, kind: Kind) -> ResourceKey:
    """Returns the key of a custom resource's body."""
    metadata = body["metadata"]
    return ResourceKey(kind.kind, metadata.get("namespace", ""), metadata["name"])


def owner_of(body: KubernetesObject) -> KubernetesObject | None:
    """Returns the controlling owner reference of a child, or None."""
    references = body["metadata"].get("ownerReferences", [])
    return next((reference for reference in references if reference.get("controller")), None)
