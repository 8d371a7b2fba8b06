"""The small records with which pods report their progress to the operator.

Rank 0 overwrites `InstanceKeys.progress(attempt)` every few seconds and writes the last record to the termination log;
build pods do the same at `BuildKeys.progress`. The operator pulls them and trusts nothing: size, schema and bounds are
checked here, and only what grew in (attempt, seq) is applied. Unknown fields of a newer trainer are ignored, so
that an operator that was rolled back still sees that its runs are alive.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from lead_protocol.manifests import MAX_ATTEMPT, MAX_COUNT
from lead_protocol.strict_model import StrictModel, parse_or_none

MAX_RECORD_BYTES = 4096  # the kubelet truncates termination messages at 4096 bytes
MESSAGE_CHARS = 512
MAX_METRICS = 16
MAX_ADVISORIES = 4
MAX_DEGRADED_RANKS = 64  # that are named
STEP_BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # of the histogram of step durations

_Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
_Seconds = Annotated[float, Field(ge=0, le=1e12)]
_Text = Annotated[str, StringConstraints(max_length=MESSAGE_CHARS)]
_Name = Annotated[str, StringConstraints(max_length=64, pattern=r"^[A-Za-z0-9_./-]+$")]


class CheckpointRef(StrictModel):
    """The newest committed checkpoint as rank 0 knows it; the operator composes the URI itself."""

    step: _Count
    epoch: _Count  # epochs completed
    manifest_key: Annotated[str, StringConstraints(max_length=512)]
    saved_at: Annotated[str, StringConstraints(max_length=40)]  # RFC 3339, UTC, for people
    size_bytes: _Count


class Advisory(StrictModel):
    """Something a watch rule wants a person to know; it changes nothing by itself."""

    rule: Annotated[str, StringConstraints(max_length=40, pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$")]
    epoch: _Count  # epochs completed when it was raised
    message: Annotated[str, StringConstraints(max_length=240, pattern=r"^[^\x00-\x1f\x7f]*$")]  # one line


class ProgressRecord(StrictModel):
    """How far a stage instance is."""

    kind: Literal["train"] = "train"
    attempt: Annotated[int, Field(ge=1, le=MAX_ATTEMPT)]
    seq: _Count
    phase: Literal["Starting", "Loading", "Training", "Evaluating", "Checkpointing", "Stopped", "Done", "Failed"]
    epoch: _Count  # epochs completed
    epochs: _Count
    step: _Count  # optimizer steps completed in this stage; of an evaluation: batches measured
    steps: _Count  # optimizer steps of the whole stage; of an evaluation: batches of this rank
    loss: float | None = None
    metrics: Annotated[dict[_Name, float], Field(max_length=MAX_METRICS)] = Field(default_factory=dict)
    samples_per_s: Annotated[float, Field(ge=0, le=1e12)] | None = None
    eta_s: Annotated[float, Field(ge=0, le=1e12)] | None = None
    # Of all ranks' session caches and loaders, in this attempt.
    cache_hits: _Count = 0
    cache_misses: _Count = 0
    cache_fetched_bytes: _Count = 0  # from the store
    cache_second_bytes: _Count = 0  # asked of the store a second time, because the first answer was late
    cache_fetch_s: _Seconds = 0.0  # that loading threads waited for the store
    cache_corrupt: _Count = 0  # copies on the disk that were thrown away
    cache_degraded: bool = False  # of any rank
    cache_degraded_ranks: Annotated[list[_Count], Field(max_length=MAX_DEGRADED_RANKS)] = Field(default_factory=list)
    loading_s: Annotated[dict[_Name, _Seconds], Field(max_length=8)] = Field(default_factory=dict)  # by stage
    # Of rank 0, in this attempt.
    step_counts: Annotated[list[_Count], Field(max_length=len(STEP_BOUNDS_S) + 1)] = Field(
        default_factory=list
    )  # steps that took up to each of STEP_BOUNDS_S and longer than the bound before it; the last: longer than all
    steps_s: _Seconds = 0.0  # that those steps took, with the time they waited for data
    checkpoints: _Count = 0  # committed
    checkpoints_s: _Seconds = 0.0  # that training waited for them
    gpu_memory_bytes: _Count | None = None  # in use on the GPU of rank 0, by all processes
    gpu_memory_total_bytes: _Count | None = None
    gpu_busy: Annotated[float, Field(ge=0, le=1)] | None = None  # share of the last second or so in which it computed
    resumed_from_step: _Count | None = None
    checkpoint: CheckpointRef | None = None
    best_metric: float | None = None
    best_by: Annotated[str, StringConstraints(max_length=64, pattern=r"^[A-Za-z0-9_./-]*$")] = (
        ""  # which metric that is
    )
    advisories: Annotated[list[Advisory], Field(max_length=MAX_ADVISORIES)] = Field(default_factory=list)
    message: _Text = ""


class BuildRecord(StrictModel):
    """How far one build pod is."""

    kind: Literal["build"] = "build"
    attempt: Annotated[int, Field(ge=1, le=MAX_ATTEMPT)]
    seq: _Count
    phase: Literal["Listing", "Building", "Done", "Failed"]
    digest: Annotated[str, StringConstraints(max_length=64, pattern=r"^[0-9a-f]*$")] = ""
    routes_total: _Count = 0
    routes_kept: _Count = 0
    samples: _Count = 0  # of the whole cache
    shards_total: _Count = 0  # of the whole cache
    shards_done: _Count = 0  # by this pod, found complete or built
    size_bytes: _Count = 0  # of those shards
    share_samples: _Count = 0  # that this pod answers for
    samples_done: _Count = 0  # of them, those of unfinished shards too
    samples_per_s: Annotated[float, Field(ge=0, le=1e12)] | None = None  # of this pod, while it makes a shard
    eta_s: Annotated[float, Field(ge=0, le=1e12)] | None = None  # of this pod's share
    message: _Text = ""


def to_bytes(record: ProgressRecord) -> bytes:
    """Returns the record as JSON of at most MAX_RECORD_BYTES; if too long, without display-only fields."""
    updates: tuple[dict[str, Any], ...] = ({}, {"metrics": {}}, {"metrics": {}, "advisories": []})
    for update in updates:
        data = record.model_copy(update=update).model_dump_json().encode()
        if len(data) <= MAX_RECORD_BYTES:
            return data
    short = {**updates[-1], "message": record.message[:64]}
    return record.model_copy(update=short).model_dump_json().encode()


def parse_progress(data: bytes) -> ProgressRecord | None:
    """Returns the record in `data`, or None where it is not a valid ProgressRecord of at most MAX_RECORD_BYTES."""
    return parse_or_none(ProgressRecord, data, MAX_RECORD_BYTES)


def parse_build(data: bytes) -> BuildRecord | None:
    """Returns the record in `data`, or None where it is not a valid BuildRecord of at most MAX_RECORD_BYTES."""
    return parse_or_none(BuildRecord, data, MAX_RECORD_BYTES)
