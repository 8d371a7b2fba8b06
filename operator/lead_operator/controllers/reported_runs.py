"""Whether what a TrainingRun's status reports is the operator's own: a status is output, whoever writes it.

Asked by `controllers.training_run`. Of an end, once for each that is reported, the record below `control/` decides.
Without one, the store was unavailable when this process reported the end, or the end is forged: the process remembers
which, a pod lives, or it has recorded what the run did before. A run of which it knows nothing stays as it is: whoever
removed all records of a run that has ended does not start it again. Of counters, what this process has decided itself
is trusted: its snapshot of the bucket may be older than its own newest record.
"""

from dataclasses import dataclass, field, replace

import structlog

from lead_operator.bucket.bucket_view import BucketView
from lead_operator.decisions.observed import ObservedRun
from lead_operator.decisions.training_run.end import reported_end
from lead_operator.decisions.training_run.reported_counters import Counters, find_contradiction, reported_counters
from lead_operator.memory import Memories, Part
from lead_operator.resources.training_run import TrainingRun
from lead_operator.resources.training_run_status import TrainingRunStatus
from lead_operator.settings import StorageProfile
from lead_protocol.run_records import RunEnd

KEPT = 2  # counters: the newest may not have been written

log = structlog.get_logger(__name__)

End = tuple[str, str]  # phase and reason


@dataclass(frozen=True)
class EndCheck:
    """What is known of an end that a status reports."""

    error: str = ""  # of the store: nothing is known
    ended: RunEnd | None = None
    disproved: bool = False


@dataclass
class _Decided(Part):
    """What this process has decided of one run."""

    unfinished: bool = False  # it has passed over the run before it ended
    end: End | None = None
    checked: tuple[End, EndCheck] | None = None
    counters: tuple[Counters, ...] = ()


@dataclass
class ReportedRuns:
    """What one operator process knows of runs by itself."""

    bucket: BucketView
    memories: Memories = field(default_factory=Memories)

    def note(self, run: TrainingRun, before: TrainingRunStatus, after: TrainingRunStatus) -> None:
        """Remembers what a decision comes to: `before` and `after` are statuses.

        An end stays remembered when a later decision goes by a status from before it: the server may have taken the
        write whose answer was lost.
        """
        known = self.memories.of(run.identity.uid, _Decided)
        end, counters = reported_end(after), reported_counters(after)
        if end is None:
            known.unfinished = True
        elif end != reported_end(before):
            known.end = end
        if counters not in known.counters[-1:]:
            known.counters = (*known.counters, counters)[-KEPT:]

    async def check_end(self, run: TrainingRun, profile: StorageProfile, observed: ObservedRun) -> EndCheck:
        """Returns whether the operator has decided the end that the status of `observed` reports."""
        identity, end = run.identity, reported_end(observed.status)
        assert end is not None
        known = self.memories.of(identity.uid, _Decided)
        if known.checked is not None and known.checked[0] == end:
            return known.checked[1]
        snapshot = await self.bucket.read_recorded_end(profile, identity.namespace, identity.uid)
        if snapshot.error:
            return EndCheck(snapshot.error)
        attempts = any(entry.attempt for entry in observed.status.stages)
        lives = any(not pod.terminal for pod in observed.pods)
        met = known.unfinished or lives or snapshot.any_record or not attempts
        check = EndCheck(ended=snapshot.ended, disproved=snapshot.ended is None and known.end != end and met)
        if check.disproved:
            log.warning("end_not_recorded", resource=str(identity), phase=end[0], reason=end[1])
        elif snapshot.ended is not None or known.end != end:
            known.checked = (end, check)
        return check

    def check_counters(self, run: TrainingRun, observed: ObservedRun) -> ObservedRun:
        """Returns the observation, with what its status reports and the records do not hold."""
        if reported_counters(observed.status) in self.memories.of(run.identity.uid, _Decided).counters:
            return observed
        found = find_contradiction(run, observed)
        if found:
            log.warning("counters_not_recorded", resource=str(run.identity), found=found)
        return replace(observed, counters_disproved=found)
