"""One sentence of a preflight check."""

from dataclasses import dataclass
from typing import Literal

Result = Literal["ok", "warning", "failed"]


@dataclass(frozen=True)
class Finding:
    """What one check found; a failed one names the remedy."""

    check: str
    result: Result
    text: str
