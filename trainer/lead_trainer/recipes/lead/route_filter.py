"""Which routes LEAD trains on, and why not: its rules, odd ones included, each with a reason code.

Read by `buckets`. A verdict needs only `results.json` and the listing. Two of LEAD's rules appear to be slips and are
kept because collections must be equal: a failed route without any infraction passes (0 infractions = 0 min-speed
infractions), unless its failure text is one of REFUSED_STATUS. LEAD fills its persistent cache from kept routes alone,
so one that lies there and has lost its verdict is kept.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lead_trainer.contract.raw_data import SourceTree
from lead_trainer.data.raw_json import raw_json
from lead_trainer.errors import BadData
from lead_trainer.recipes.lead.ingest.route_tree import RouteFolder

NO_AGENT = "Failed - Agent couldn't be set up"
SIMULATION_CRASHED = "Failed - Simulation crashed"
AGENT_CRASHED = "Failed - Agent crashed"
BROKEN_STATUS = frozenset({NO_AGENT, SIMULATION_CRASHED, AGENT_CRASHED})
REFUSED_STATUS = BROKEN_STATUS | {"Failed"}


class Reason(StrEnum):
    """Why a route is kept or not."""

    KEPT = "kept"
    NO_RESULTS = "no_results"  # results.json is missing: the route was not finished
    NO_METAS = "no_metas"  # metas/0000.pkl is missing
    MISSING_FILES = "missing_files"  # LEAD would train on it, and end where the first missing file is wanted
    INFRACTIONS = "infractions"  # more than min-speed infractions, or than lane infractions of a completed route
    AGENT_NOT_SET_UP = "agent_not_set_up"
    FAILED = "failed"
    SIMULATION_CRASHED = "simulation_crashed"
    AGENT_CRASHED = "agent_crashed"


_STATUS_REASON = {
    NO_AGENT: Reason.AGENT_NOT_SET_UP,
    "Failed": Reason.FAILED,
    SIMULATION_CRASHED: Reason.SIMULATION_CRASHED,
    AGENT_CRASHED: Reason.AGENT_CRASHED,
}


@dataclass(frozen=True)
class RouteResult:
    """What the filter reads of results.json."""

    status: str
    score: float  # composed, 0..100
    infractions: int
    min_speed: int
    outside_lanes: int

    @property
    def only_min_speed(self) -> bool:
        return self.infractions == self.min_speed

    @property
    def only_min_speed_or_lanes(self) -> bool:
        return self.infractions == self.min_speed + self.outside_lanes


def route_result(tree: SourceTree, route: str) -> RouteResult:
    """Reads a route's results.json; raises BadData naming the file and the missing key."""
    path = f"{route}/results.json"
    try:
        document: dict[str, Any] = raw_json(tree.read(path))
        infractions = document["infractions"]
        return RouteResult(
            status=str(document["status"]),
            score=float(document["scores"]["score_composed"]),
            infractions=int(document["num_infractions"]),
            min_speed=len(infractions["min_speed_infractions"]),
            outside_lanes=len(infractions["outside_route_lanes"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadData(f"file {path} is not a route verdict ({error!r}); restore it or remove the route") from error


def training_reason(folder: RouteFolder, result: RouteResult | None) -> Reason:
    """Returns whether LEAD trains on a route (its `route_failed` is False), with the reason where not."""
    if result is None and not folder.is_cached:
        return Reason.NO_RESULTS
    if not folder.has_first_meta:
        return Reason.NO_METAS
    if result is None:
        return Reason.KEPT
    if result.status in REFUSED_STATUS:
        return _STATUS_REASON[result.status]
    clean = (
        result.score == 100.0
        or result.status == "Perfect"
        or (result.score < 100.0 and result.only_min_speed)
        or (result.status == "Completed" and result.only_min_speed_or_lanes)
    )
    return Reason.KEPT if clean else Reason.INFRACTIONS


def completed_but_failed(folder: RouteFolder, result: RouteResult | None) -> bool:
    """Returns whether a route ran to its end and still missed a clean score: the collection `failed`."""
    if result is None or not folder.has_first_meta or result.status in BROKEN_STATUS or result.score == 100.0:
        return False
    if result.status != "Completed":
        return True
    return not (result.only_min_speed and result.score < 100.0) and not result.only_min_speed_or_lanes
