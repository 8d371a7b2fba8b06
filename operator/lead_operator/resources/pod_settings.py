"""Pod settings of a spec: compute resources, tolerations, labels. The same for training and build pods."""

import math
from dataclasses import dataclass, field
from typing import Any

from lead_operator.resources.body import TOLERATION_DEFAULTS, Reader, parse_quantity

EPHEMERAL_STORAGE = "ephemeral-storage"


@dataclass(frozen=True)
class ComputeResources:
    """Requests and limits of one container, as Kubernetes writes them."""

    requests: dict[str, str]
    limits: dict[str, str]

    @property
    def gpus(self) -> int:
        """How many GPUs a pod gets, whole ones or MIG slices, of any vendor."""
        return sum(
            int(amount)
            for name, amount in self.limits.items()
            if amount.isdigit() and (name.endswith("/gpu") or "/mig-" in name)
        )

    @property
    def disk_limit(self) -> str:
        """The disk limit of a pod in a spec; empty if it has none."""
        return self.limits.get(EPHEMERAL_STORAGE, "")

    @property
    def devices(self) -> int:
        """How many devices a pod asks for, of all device plugins together, however the numbers are written."""
        asked = {**self.requests, **self.limits}
        return math.ceil(sum(parse_quantity(amount) for name, amount in asked.items() if "/" in name))

    @property
    def cpus(self) -> float:
        """How many cores a pod may count on: its limit, else its request, else one."""
        return parse_quantity(self.limits.get("cpu") or self.requests.get("cpu") or "1")


@dataclass(frozen=True)
class PodSettings:
    """The closed list of what may be set on pods besides."""

    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: tuple[dict[str, Any], ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)


def parse_resources(reader: Reader) -> ComputeResources:
    """Reads requests and limits."""
    return ComputeResources(
        requests=reader.texts("requests") if "requests" in reader.value else {},
        limits=reader.texts("limits") if "limits" in reader.value else {},
    )


def parse_tolerations(reader: Reader) -> tuple[dict[str, Any], ...]:
    """Reads tolerations as Kubernetes writes them, without the empty value that operator Exists forbids."""
    tolerations = reader.children("tolerations", TOLERATION_DEFAULTS)
    return tuple({k: v for k, v in t.value.items() if v not in ("", None)} for t in tolerations)
