"""One comparison with a recorded value, as a line of a table."""

from dataclasses import dataclass

import torch

STAGES = {False: "pretrain", True: "posttrain"}


@dataclass(frozen=True)
class Comparison:
    """One line: what was compared, how far apart, and what the reference allows."""

    what: str
    key: str
    deviation: float
    allowed: float

    @property
    def good(self) -> bool:
        """True within the tolerance; NaN is not."""
        return self.deviation <= self.allowed


def relative(found: torch.Tensor | float, want: float) -> float:
    """Returns the deviation in parts of the wanted value; of values near 0 in parts of 1e-6."""
    value = found.item() if isinstance(found, torch.Tensor) else found
    return abs(value - want) / max(abs(want), 1e-6)
