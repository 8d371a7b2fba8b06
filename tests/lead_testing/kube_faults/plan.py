"""What goes wrong between the operator and the API server, as data: written to JSON, replayed from it."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

CallFault = Literal[
    "kill",  # carried out, then the operator is killed before it reads the answer
    "lost-answer",  # carried out, then the connection breaks
    "refused-connection",  # not carried out, the connection breaks
    "conflict",  # 409 and not carried out
    "too-many",  # 429 with Retry-After: 1 and not carried out
    "error",  # 500 and not carried out
    "timeout",  # not carried out, and no answer for `seconds`
    "slow",  # carried out after `seconds`, also where the operator waits no longer
    "outage",  # from this call on everything is answered 503 for `seconds`, and the watches end
    "silence",  # from this call on nothing is answered for `seconds`, and the watches stay open and tell nothing
    "stale",  # carried out, the operator killed, and lists and watches show the world `back` writes ago for `seconds`
]
EventFault = Literal[
    "hide",  # no watch ever tells it
    "duplicate",  # told twice
    "reorder",  # told after the next one of its watch
    "gone",  # 410 instead, and the watch ends
    "watch-error",  # ERROR 500 instead, and the watch ends
    "stall",  # this watch stays open and tells nothing any more
]
FaultKind = Literal[CallFault, EventFault]
EVENT_FAULTS = frozenset(get_args(EventFault))
CALL_FAULTS = frozenset(get_args(CallFault))


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong, at the `at`-th call or event that fits `site`, and at the `times` - 1 next ones."""

    kind: FaultKind
    at: int = 1
    site: str = ""  # calls: "verb resource", "" is any write; events: the resource, "" is any
    times: int = 1
    seconds: float = 0.0
    back: int = 0

    def hits(self, number: int) -> bool:
        """Tells whether the `number`-th fitting call or event is spoiled."""
        return self.at <= number < self.at + self.times

    def __str__(self) -> str:
        more = f" to {self.at + self.times - 1}" if self.times > 1 else ""
        lasting = f" for {self.seconds:g} s" if self.seconds else ""
        older = f" back {self.back}" if self.back else ""
        return f"{self.kind} at {self.site or 'any'} {self.at}{more}{lasting}{older}"


@dataclass(frozen=True)
class Plan:
    """One trial: a workload and everything that goes wrong during it."""

    workload: str
    faults: tuple[Fault, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)  # of the operator's environment

    def to_json(self) -> str:
        """Returns the plan on one line."""
        return json.dumps(
            {"workload": self.workload, "faults": [asdict(f) for f in self.faults], "settings": self.settings}
        )

    def __str__(self) -> str:
        return f"{self.workload}: {'; '.join(map(str, self.faults)) or 'undisturbed'}"


def parse_plan(text: str) -> Plan:
    """Reads a plan; raises ValueError that names what is wrong with it."""
    document: dict[str, Any] = json.loads(text)
    if unknown := sorted(set(document) - {"workload", "faults", "settings"}):
        raise ValueError(f"plan has unknown keys {unknown}; known are faults, settings, workload")
    faults = tuple(Fault(**entry) for entry in document.get("faults", []))
    for fault in faults:
        if fault.kind not in CALL_FAULTS | EVENT_FAULTS:
            raise ValueError(f"fault {fault.kind!r} is unknown; known are {sorted(CALL_FAULTS | EVENT_FAULTS)}")
    return Plan(document["workload"], faults, document.get("settings", {}))
