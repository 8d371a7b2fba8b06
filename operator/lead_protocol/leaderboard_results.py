"""Result files of CARLA's Leaderboard (1 and 2, and Bench2Drive's), and the numbers of a closed-loop evaluation.

A simulator writes them, often of another version than the last one: what is not needed is passed over, what is needed
is bounded. Scores are in percent, penalties and shares in [0, 1], lengths in m, durations in s of simulated time.
Format: the `_checkpoint` document of carla-simulator/leaderboard, `statistics_manager.py`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lead_protocol.strict_model import StrictModel

MAX_RESULT_BYTES = 16 * 1024 * 1024  # of one file; 220 routes of Bench2Drive in one have 1.2 MB
MAX_ROUTES = 10_000
MAX_KINDS, MAX_INFRACTIONS = 64, 10_000  # kinds in a record, and infractions of one kind

FINISHED = ("Completed", "Perfect")
CRASHED = ("Failed - Simulation crashed", "Failed - Agent couldn't be set up", "Failed - Agent crashed")
SPEED = "min_speed_infractions"  # that Bench2Drive counts neither in the score nor against success
COLLISIONS = ("collisions_layout", "collisions_pedestrian", "collisions_vehicle")
INTERVENTIONS = ("route_dev", "vehicle_blocked", "route_timeout")  # where the Leaderboard ends a route

_Text = Annotated[str, Field(max_length=4096)]
_Percent = Annotated[float, Field(ge=0.0, le=100.0 + 1e-6)]
_Length = Annotated[float, Field(ge=0.0, le=1e7)]


class _Foreign(BaseModel):
    """A part of a document of another program: types and bounds are ours, its further members are its own."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, allow_inf_nan=False)


class Scores(_Foreign):
    """How well one route was driven: composed = route x penalty, save where a version rounds."""

    score_route: _Percent
    score_penalty: Annotated[float, Field(ge=0.0, le=1.0 + 1e-6)]
    score_composed: _Percent


class RouteMeta(_Foreign):
    """Length of the route [m] and how long it was driven [s, simulated]."""

    route_length: _Length = 0.0
    duration_game: _Length = 0.0


class RouteRecord(_Foreign):
    """One route that was driven to some end."""

    route_id: Annotated[str, Field(min_length=1, max_length=256)]
    status: Annotated[str, Field(max_length=256)]
    infractions: Annotated[
        dict[Annotated[str, Field(max_length=64)], Annotated[list[_Text], Field(max_length=MAX_INFRACTIONS)]],
        Field(max_length=MAX_KINDS),
    ]
    scores: Scores
    meta: RouteMeta = RouteMeta()

    @property
    def driven_km(self) -> float:
        """How far the route was driven [km]."""
        return self.meta.route_length * self.scores.score_route / 100_000.0

    @property
    def is_perfect(self) -> bool:
        """Whether the whole route was driven without a collision and without passing a red light."""
        broken = any(self.infractions.get(kind) for kind in (*COLLISIONS, "red_light"))
        return self.status in FINISHED and self.scores.score_route >= 100.0 and not broken

    @property
    def is_success(self) -> bool:
        """Whether Bench2Drive counts the route as a success: finished, with no infraction but of minimum speed."""
        broken = any(found for kind, found in self.infractions.items() if kind != SPEED)
        return self.status in FINISHED and not broken


class _Checkpoint(_Foreign):
    progress: Annotated[list[Annotated[int, Field(ge=0, le=MAX_ROUTES)]], Field(max_length=2)] = []
    records: Annotated[list[RouteRecord], Field(max_length=MAX_ROUTES)]


class ResultFile(_Foreign):
    """One result file: records of routes that ended, and how many there were to drive."""

    checkpoint: Annotated[_Checkpoint, Field(alias="_checkpoint")]
    entry_status: Annotated[str, Field(max_length=256)] = ""

    @property
    def records(self) -> Sequence[RouteRecord]:
        """The routes that have a record."""
        return self.checkpoint.records

    @property
    def without_record(self) -> int:
        """How many routes of this file were begun or due and have no record."""
        due = self.checkpoint.progress[1] if len(self.checkpoint.progress) == 2 else len(self.records)
        return max(0, due - len(self.records))


class NoResults(ValueError):
    """A file that holds no results of the Leaderboard; the message names the member, what was found and expected."""


def parse_results(data: bytes) -> ResultFile:
    """Returns the results in a file; raises NoResults."""
    if len(data) > MAX_RESULT_BYTES:
        raise NoResults(f"it has {len(data)} bytes, expected at most {MAX_RESULT_BYTES}")
    try:
        return ResultFile.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        found = f", found {first['input']!r:.80}" if first["type"] not in ("missing", "json_invalid") else ""
        raise NoResults(f"{f'{where}: ' if where else ''}{first['msg']}{found}") from None


class ClosedLoopSummary(StrictModel):
    """The numbers of one closed-loop evaluation. Means are over routes with a record, unless noted."""

    routes: int  # that were to be driven
    recorded: int  # that have a record
    finished: int
    driving_score: float | None  # percent; None where no route has a record
    driving_score_of_all: float | None  # percent; a route without a record counts as 0
    route_completion: float | None  # percent
    infraction_penalty: float | None  # 1: no infraction
    success: float | None  # share of all routes: whole route, no collision, no red light
    success_bench2drive: float | None  # share of all routes, by Bench2Drive's rule
    driven_km: float
    infractions_per_km: dict[str, float]  # by the Leaderboard's names; empty where nothing was driven
    interventions: int  # routes that the Leaderboard ended: deviation, blocked, time
    without_record: list[str]  # names of routes, or of files and how many
    crashed: list[str]  # routes whose simulator or agent crashed


@dataclass(frozen=True)
class NamedResults:
    """A result file and the name that a person knows it by."""

    name: str
    results: ResultFile


def summarise(files: Iterable[NamedResults]) -> ClosedLoopSummary:
    """Returns the numbers of all files together; raises NoResults where two records are of the same route."""
    files = list(files)
    records = [record for file in files for record in file.results.records]
    twice = {route: times for route, times in Counter(record.route_id for record in records).items() if times > 1}
    if twice:
        route, times = min(twice.items())
        raise NoResults(f"route {route} has {times} records in these files, expected one a route")
    missing = [_missing(file) for file in files if file.results.without_record]
    routes = len(records) + sum(file.results.without_record for file in files)
    driven_km = sum(record.driven_km for record in records)
    counts: Counter[str] = Counter()
    for record in records:
        counts.update({kind: len(found) for kind, found in record.infractions.items()})
    return ClosedLoopSummary(
        routes=routes,
        recorded=len(records),
        finished=sum(record.status in FINISHED for record in records),
        driving_score=_mean(record.scores.score_composed for record in records),
        driving_score_of_all=_share(sum(record.scores.score_composed for record in records), routes),
        route_completion=_mean(record.scores.score_route for record in records),
        infraction_penalty=_mean(record.scores.score_penalty for record in records),
        success=_share(sum(record.is_perfect for record in records), routes),
        success_bench2drive=_share(sum(record.is_success for record in records), routes),
        driven_km=driven_km,
        infractions_per_km={kind: counts[kind] / driven_km for kind in sorted(counts)} if driven_km else {},
        interventions=sum(any(record.infractions.get(kind) for kind in INTERVENTIONS) for record in records),
        without_record=sorted(missing),
        crashed=sorted(record.route_id for record in records if record.status in CRASHED),
    )


def _missing(file: NamedResults) -> str:
    absent = file.results.without_record
    return file.name if absent == 1 and not file.results.records else f"{file.name} ({absent} routes)"


def _mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return fmean(values) if values else None


def _share(total: float, of: int) -> float | None:
    return total / of if of else None


def to_numbers(summary: ClosedLoopSummary) -> dict[str, float]:
    """Returns every single number of a summary by its name, for a status, a regression check or TensorBoard."""
    document: dict[str, Any] = summary.model_dump()
    return {name: float(value) for name, value in document.items() if isinstance(value, int | float)}
