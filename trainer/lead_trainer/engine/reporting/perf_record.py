"""What a run keeps of its speed, one record an attempt.

`lead compare-perf` compares two of them, so a slower version of the code shows before it costs a week.
"""

from lead_protocol.strict_model import StrictModel


class PerfRecord(StrictModel):
    """The speed of one attempt; times in seconds, of rank 0."""

    samples_per_s: float  # of all ranks, at the median step
    step_s: float  # median, waiting included
    step_p90_s: float
    waiting_share: float  # of the time, for batches
    steps: int  # that were measured
    batch_size: int  # of an optimizer step of all ranks
    ranks: int
    device: str
    precision: str
    gpu_memory_bytes: int | None = None  # the most that was allocated at once
    gpu_utilisation: float | None = None  # percent; needs the package nvidia-ml-py
    torch_version: str
    git_revision: str
