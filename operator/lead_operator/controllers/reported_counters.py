"""Whether the counters that a run's status reports are the operator's own: a status is output, whoever writes it.

Asked by `controllers.reconcile` after each look at a run's bucket. What this process has decided itself is believed:
its look at the bucket may be older than its own newest record.
"""

from dataclasses import dataclass, field, replace

import structlog

from lead_operator.decisions.observed import ObservedRun
from lead_operator.decisions.training_run.reported_counters import Counters, find_contradiction, reported_counters
from lead_operator.resources.training_run import TrainingRun
from lead_operator.resources.training_run_status import TrainingRunStatus

KEPT = 2  # the newest may not have been written

log = structlog.get_logger(__name__)


@dataclass
class ReportedCounters:
    """What one operator process has decided of runs' counters, by UID."""

    decided: dict[str, tuple[Counters, ...]] = field(default_factory=dict)

    def note(self, run: TrainingRun, status: TrainingRunStatus) -> None:
        """Remembers what a decision comes to."""
        uid, counters = run.identity.uid, reported_counters(status)
        before = self.decided.get(uid, ())
        if counters not in before[-1:]:
            self.decided[uid] = (*before, counters)[-KEPT:]

    def check(self, run: TrainingRun, observed: ObservedRun) -> ObservedRun:
        """Returns the observation, with what its status reports and the records do not hold."""
        if reported_counters(observed.status) in self.decided.get(run.identity.uid, ()):
            return observed
        found = find_contradiction(run, observed)
        if found:
            log.warning("counters_not_recorded", resource=str(run.identity), found=found)
        return replace(observed, counters_disproved=found)

    def forget(self, uid: str) -> None:
        """Drops what is remembered of a run that is gone."""
        self.decided.pop(uid, None)
