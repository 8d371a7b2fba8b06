"""Whether the end that a run's status reports is the operator's own: a status is output, whoever writes it.

Asked by `controllers.reconcile` for runs whose conditions say Succeeded or Failed, once for each end that is reported.
The record below `control/` decides. Where there is none the store was away when this process told the end, or the end
is forged: then it remembers which, a pod lives, or it has recorded what the run did before. A run of which it knows
nothing stays as it is: whoever removed all records of a run that has ended does not start it again.
"""

from dataclasses import dataclass, field

import structlog

from lead_operator.bucket.bucket_view import BucketView
from lead_operator.decisions.observed import ObservedRun
from lead_operator.decisions.training_run.end import reported_end
from lead_operator.resources.training_run import TrainingRun
from lead_operator.resources.training_run_status import TrainingRunStatus
from lead_operator.settings import StorageProfile
from lead_protocol.run_records import RunEnd

log = structlog.get_logger(__name__)

End = tuple[str, str]  # phase and reason


@dataclass(frozen=True)
class EndCheck:
    """What is known of an end that a status reports."""

    error: str = ""  # of the store: nothing is known
    ended: RunEnd | None = None
    disproved: bool = False


@dataclass
class ReportedEnds:
    """What one operator process knows of the ends of runs, by UID."""

    bucket: BucketView
    unfinished: set[str] = field(default_factory=set)  # runs that it has passed over before they ended
    decided: dict[str, End] = field(default_factory=dict)  # by this process
    checked: dict[str, tuple[End, EndCheck]] = field(default_factory=dict)

    def note(self, run: TrainingRun, before: TrainingRunStatus, after: TrainingRunStatus) -> None:
        """Remembers what a decision comes to: `before` and `after` are statuses.

        An end stays remembered when a later decision goes by a status from before it: the server may have taken the
        write whose answer was lost.
        """
        uid, end = run.identity.uid, reported_end(after)
        if end is None:
            self.unfinished.add(uid)
        elif end != reported_end(before):
            self.decided[uid] = end

    def forget(self, uid: str) -> None:
        """Drops what is remembered of a run that is gone."""
        self.unfinished.discard(uid)
        self.decided.pop(uid, None)
        self.checked.pop(uid, None)

    async def check(self, run: TrainingRun, profile: StorageProfile, observed: ObservedRun) -> EndCheck:
        """Returns whether the operator has decided the end that the status of `observed` reports."""
        identity, end = run.identity, reported_end(observed.status)
        assert end is not None
        held = self.checked.get(identity.uid)
        if held is not None and held[0] == end:
            return held[1]
        look = await self.bucket.look_at_end(profile, identity.namespace, identity.uid)
        if look.error:
            return EndCheck(look.error)
        ours = self.decided.get(identity.uid) == end
        attempts = any(entry.attempt for entry in observed.status.stages)
        lives = any(not pod.terminal for pod in observed.pods)
        known = identity.uid in self.unfinished or lives or look.any_record or not attempts
        check = EndCheck(ended=look.ended, disproved=look.ended is None and not ours and known)
        if check.disproved:
            log.warning("end_not_recorded", resource=str(identity), phase=end[0], reason=end[1])
        elif look.ended is not None or not ours:
            self.checked[identity.uid] = (end, check)
        return check
