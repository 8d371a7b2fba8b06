"""What a check pod reports: whether the recipe accepts a run's configuration. Its whole termination message.

Only such a record refuses a configuration. An image that does not know this job ends with the same exit code.
"""

from typing import Annotated, Literal

from pydantic import StringConstraints

from lead_protocol.progress_record import MAX_RECORD_BYTES
from lead_protocol.strict_model import StrictModel, parse_or_none

MAX_MESSAGE = 512  # characters


class CheckRecord(StrictModel):
    """The answer of a recipe."""

    kind: Literal["check"] = "check"
    accepted: bool
    message: Annotated[str, StringConstraints(max_length=MAX_MESSAGE)] = ""  # empty where it is accepted


def parse_check(data: bytes) -> CheckRecord | None:
    """Returns the record in `data`, or None where it is not a valid CheckRecord of at most MAX_RECORD_BYTES."""
    return parse_or_none(CheckRecord, data, MAX_RECORD_BYTES)
