"""What is left to do for a run that has ended: it keeps its status, and nothing of it is started again. Pure."""

from lead_operator.decisions.figures import seconds_since
from lead_operator.decisions.observed import ObservedRun
from lead_operator.decisions.plan import Plan
from lead_operator.decisions.pod_group import clean_pods
from lead_operator.decisions.restarts import read_restarts
from lead_operator.decisions.run_records import owed_verdict, with_the_store
from lead_operator.decisions.run_step import SOON_S
from lead_operator.resources.training_run import TrainingRun


def after_end(run: TrainingRun, observed: ObservedRun) -> Plan:
    """Returns the plan for a run that has ended: what is left of its pods goes, and after its time the run itself."""
    status = {**observed.previous, "observedGeneration": run.identity.generation}
    if "restarts" not in status and not observed.accounts_unknown:
        attempts = [int(entry.get("attempt") or 0) for entry in status.get("stages") or []]
        status["restarts"] = read_restarts(status, observed.book, attempts).to_status()
    records = owed_verdict(run, observed)
    if records:
        status = with_the_store(status, observed.now)
    deletes = clean_pods(run, observed)
    requeue_s = SOON_S * 10 if deletes else None
    ended_s = seconds_since(status.get("completionTime"), observed.now)
    if run.ttl_after_finished_s is None or ended_s is None:
        return Plan(status=status, records=records, deletes=deletes, requeue_after_s=requeue_s)
    left_s = run.ttl_after_finished_s - ended_s
    if left_s <= 0:
        return Plan(status=status, deletes=deletes, delete_self=True)
    return Plan(status=status, records=records, deletes=deletes, requeue_after_s=min(left_s, requeue_s or left_s))
