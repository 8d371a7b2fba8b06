"""The commit of one closed-loop evaluation: its numbers, and where its results are. Written last, create-only.

Written by the pod that drove, read by the operator, which trusts nothing in it beyond type and bounds.
"""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from lead_protocol.manifests import MAX_ATTEMPT, MAX_COUNT, StoredObject
from lead_protocol.strict_model import StrictModel, parse_or_none

MAX_CLOSED_LOOP_BYTES = 64 * 1024
MAX_KINDS = 64  # of infractions
SUMMARY, FILES = "summary.json", "files.json"  # every number and name; every other file with size and SHA-256

_Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
_Percent = Annotated[float, Field(ge=0.0, le=100.0 + 1e-6)]
_Amount = Annotated[float, Field(ge=0.0, le=1e9)]
_Name = Annotated[str, StringConstraints(max_length=256)]
_Kind = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.-]+$")]


class DrivenNumbers(StrictModel):
    """What one evaluation came to; scores and shares of routes in percent, None where no route has a record."""

    routes: _Count  # that were to be driven
    recorded: _Count  # that have a record
    driving_score: _Percent | None
    route_completion: _Percent | None
    success_whole_route: _Percent | None  # whole route, no collision, no red light
    success_bench2drive: _Percent | None  # finished, no infraction but of minimum speed
    infractions_per_km: Annotated[dict[_Kind, _Amount], Field(max_length=MAX_KINDS)]
    interventions: _Count
    max_acceleration: _Amount | None = None  # m/s^2; None where no motion was logged
    max_jerk: _Amount | None = None  # m/s^3


class ClosedLoopManifest(StrictModel):
    """One attempt that drove to its end."""

    format: Literal["lead-closed-loop/1"] = "lead-closed-loop/1"
    run_uid: _Name
    stage: _Name
    seed: Annotated[int, Field(ge=0, lt=2**31)]
    attempt: Annotated[int, Field(ge=1, le=MAX_ATTEMPT)]
    pod_uid: _Name
    request: Annotated[str, StringConstraints(max_length=64)] = ""
    epoch: Annotated[int, Field(ge=0, le=10**6)]
    step: Annotated[int, Field(ge=0, lt=10**12)]
    checkpoint_prefix: Annotated[str, StringConstraints(max_length=1024)]
    numbers: DrivenNumbers
    files: Annotated[dict[_Name, StoredObject], Field(max_length=8)]  # SUMMARY and FILES
    saved_at: Annotated[str, StringConstraints(max_length=40)]  # RFC 3339, UTC, for people


def parse_closed_loop(data: bytes) -> ClosedLoopManifest | None:
    """Returns the manifest in `data`, or None where it is not a valid one of at most MAX_CLOSED_LOOP_BYTES."""
    return parse_or_none(ClosedLoopManifest, data, MAX_CLOSED_LOOP_BYTES)
