"""How many bytes the copies of TrainingRuns and DatasetCaches may take, and which are cut when they take more.

Kept by `kube.informers`, filled by each informer. A copy that is cut holds what other resources need of it; a pass
over its resource reads it live. The namespace that takes most is cut first, its largest copies first: whoever fills the
memory pays for it with passes that take a call more, and nobody else does.
"""

from typing import Final

from lead_operator.kube.kinds import KubernetesObject
from lead_operator.resources.dataset_cache_status import DatasetCacheStatus
from lead_operator.resources.status_format import field_keys
from lead_operator.resources.training_run_status import TrainingRunStatus

MAX_BYTES: Final = 24 * 1024 * 1024  # of JSON, five times as much as objects: three thousand ordinary runs, 8 KiB each
CUT: Final = "cut"  # a key beside metadata, spec and status, which no API server sends
CutKey = tuple[str, str, str]  # kind, namespace, name
_SPEC = ("recipe", "datasets", "storageProfile", "retain")  # that others read of a resource
_STATUS = (
    *field_keys(DatasetCacheStatus, "phase", "digest", "observed_generation", "manifest_sha256"),
    *field_keys(TrainingRunStatus, "datasets"),
)
_CONDITIONS = ("Ready", "Failed", "Succeeded")


class CopyBudget:
    """The sizes of all copies."""

    def __init__(self, most: int = MAX_BYTES) -> None:
        self._most = most
        self._sizes: dict[str, dict[CutKey, int]] = {}  # by namespace
        self._totals: dict[str, int] = {}

    def note(self, key: CutKey, size: int) -> list[CutKey]:
        """Takes note of a copy's size in bytes, 0 where it is gone or cut; returns which copies to cut now."""
        _, namespace, _ = key
        sizes = self._sizes.setdefault(namespace, {})
        change = size - sizes.pop(key, 0)
        if size:
            sizes[key] = size
        self._totals[namespace] = self._totals.get(namespace, 0) + change
        if not sizes:
            del self._sizes[namespace], self._totals[namespace]
        return self._over()

    def _over(self) -> list[CutKey]:
        excess = sum(self._totals.values()) - self._most
        if excess <= 0:
            return []
        greatest = max(self._totals, key=lambda namespace: self._totals[namespace])
        found = list[CutKey]()
        for key, size in sorted(self._sizes[greatest].items(), key=lambda item: -item[1]):
            if excess <= 0:
                break
            found.append(key)
            excess -= size
        return found


def cut(body: KubernetesObject) -> KubernetesObject:
    """Returns of a copy what others need of it, marked as cut."""
    spec, status = body.get("spec", {}), body.get("status", {})
    conditions = [each for each in status.get("conditions") or [] if each.get("type") in _CONDITIONS]
    kept = {key: status[key] for key in _STATUS if key in status}
    if conditions:
        kept["conditions"] = conditions
    return {
        "metadata": body["metadata"],
        "spec": {key: spec[key] for key in _SPEC if key in spec},
        "status": kept,
        CUT: True,
    }
