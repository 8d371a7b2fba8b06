"""What only a status would know, as the operator keeps it below control/: a status can be erased.

The operator's key alone can write there. Records are written before the status reports their content.
"""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from lead_protocol.job import DatasetSource
from lead_protocol.manifests import Sha256
from lead_protocol.strict_model import StrictModel, parse_or_none

MAX_RUN_RECORD_BYTES = 64 * 1024

_Number = Annotated[int, Field(ge=-(10**18), le=10**18)]  # what a status may hold, people's corrections included
_Name = Annotated[str, StringConstraints(max_length=64)]
_Time = Annotated[str, StringConstraints(max_length=40)]  # RFC 3339, UTC


class InstanceRestarts(StrictModel):
    """The newest failures in a row of one stage instance: what its next pause and `noProgressLimit` rest on."""

    stage: Annotated[str, StringConstraints(max_length=20)]
    seed: int
    at_step: _Number  # of the checkpoint that they left off at; -1: there was none
    errors: _Number
    ends: _Number
    failed_attempt: _Number  # newest that ended by a failure
    failed_at: _Time | None
    reason: _Name


class RestartRecord(StrictModel):
    """The restarts of a run up to one of them, by what they are counted as."""

    program: _Number
    infrastructure: _Number
    voluntary: _Number
    instances: Annotated[list[InstanceRestarts], Field(max_length=128)]  # those that have failed before


class RunEnd(StrictModel):
    """The verdict on a run: there is one, and nothing starts after it."""

    phase: Literal["Succeeded", "Failed"]
    reason: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    message: Annotated[str, StringConstraints(max_length=2048)]
    ended_at: _Time


class FailedSource(StrictModel):
    """The source of a build as it was listed after the build had failed."""

    sha256: Sha256  # of the listing
    files: _Number


def parse_failed_source(data: bytes) -> FailedSource | None:
    """Returns the record in `data`, or None where it is not a valid one of at most MAX_RUN_RECORD_BYTES."""
    return parse_or_none(FailedSource, data, MAX_RUN_RECORD_BYTES)


class StartedAttempt(StrictModel):
    """An attempt that the operator has started, and what the run trains: fixed with its first attempt."""

    attempt: _Number
    nodes: _Number = 0  # pods of its group; 0: recorded by an operator that knew one number for all attempts
    config_hash: _Name
    datasets: Annotated[list[DatasetSource], Field(max_length=64)]


def parse_started(data: bytes) -> StartedAttempt | None:
    """Returns the record in `data`, or None where it is not a valid one of at most MAX_RUN_RECORD_BYTES."""
    return parse_or_none(StartedAttempt, data, MAX_RUN_RECORD_BYTES)


class PublishedCache(StrictModel):
    """The cache that a generation of a DatasetCache was published as: nothing else makes it Ready."""

    digest: Sha256
    manifest_sha256: Sha256  # of the published manifest's bytes


def parse_published(data: bytes) -> PublishedCache | None:
    """Returns the record in `data`, or None where it is not a valid one of at most MAX_RUN_RECORD_BYTES."""
    return parse_or_none(PublishedCache, data, MAX_RUN_RECORD_BYTES)


def parse_restart_record(data: bytes) -> RestartRecord | None:
    """Returns the record in `data`, or None where it is not a valid one of at most MAX_RUN_RECORD_BYTES."""
    return parse_or_none(RestartRecord, data, MAX_RUN_RECORD_BYTES)


def parse_run_end(data: bytes) -> RunEnd | None:
    """Returns the verdict in `data`, or None where it is not a valid one of at most MAX_RUN_RECORD_BYTES."""
    return parse_or_none(RunEnd, data, MAX_RUN_RECORD_BYTES)
