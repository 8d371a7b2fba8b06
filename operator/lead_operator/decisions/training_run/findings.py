"""The conditions of a TrainingRun. Pure."""

from dataclasses import replace

from lead_operator.decisions.conditions import (
    CHECKPOINT_MISSING,
    FINISHING,
    PODS_LOAD,
    RESIZING,
    Finding,
    storage_available,
)
from lead_operator.decisions.failure_policy import NO_VALID_CHECKPOINT, SPEC_REASONS
from lead_operator.decisions.observed import STAYS_S, ObservedPod
from lead_operator.decisions.policy_check import NOT_ALLOWED
from lead_operator.decisions.remedies import OBJECTS_REFUSED, explain_refusal, explain_waiting, unknown_profile
from lead_operator.decisions.training_run.config_check import config_checked
from lead_operator.decisions.training_run.health import OLD_PODS
from lead_operator.decisions.training_run.pod_group import (
    lost_cache_node,
    terminating_claims,
    waits_for_its_volume,
)
from lead_operator.decisions.training_run.state import InstanceState, Step
from lead_operator.decisions.training_run.view import SUSPEND_REQUESTED, RunView
from lead_operator.names import Condition, RunPhase, training_pod_name
from lead_operator.objects.service_and_claims import claim_name
from lead_protocol.progress_record import ProgressRecord

NOT_SUCCEEDED, NOT_FAILED = "NotSucceeded", "NotFailed"
_NAMED_PODS = 4
NOT_ENDED = (  # of a run that is not served, too: who waits for an end finds both conditions from the first pass on
    Finding(Condition.SUCCEEDED, False, NOT_SUCCEEDED, "the run has not ended"),
    Finding(Condition.FAILED, False, NOT_FAILED, "the run has not ended"),
)
_ENDED = {  # no pod of it trains or uses a cache
    RunPhase.SUSPENDED: "the run is suspended",
    RunPhase.SUCCEEDED: "the run has succeeded",
    RunPhase.FAILED: "the run has failed",
}

_NO_STEPS = {
    RunPhase.PENDING: "nothing trains yet: the first condition that is False names what is missing",
    RunPhase.CACHING: "training starts automatically when the data is ready; DatasetReady shows the progress",
    RunPhase.STARTING: "training starts when all pods run and have loaded; Ready shows what they wait for",
    RunPhase.CHECKPOINTING: "the pods commit a checkpoint and stop, because spec.suspend is true",
    RunPhase.SUSPENDED: "nothing trains while spec.suspend is true",
    RunPhase.SUCCEEDED: "training is done",
    RunPhase.FAILED: "the run has ended; the condition Failed gives the cause",
}


def run_findings(view: RunView, step: Step) -> list[Finding]:
    """Returns all findings, in the order in which `kubectl describe` shows them."""
    checked = config_checked(view)
    findings = [
        _accepted(view, step),
        *([] if checked is None else [checked]),
        storage_available(view.observed.store_error, view.observed.profile_error),
        view.datasets.finding,
        _ready(view, step),
        _progressing(view, step),
        _checkpointed(view),
        _checkpoints_valid(view, step),
    ]
    findings += _degraded_caches(view) if step.phase not in _ENDED else []
    findings += _advisory(view)
    findings.append(_suspended(view, step))
    return [*findings, _succeeded(view, step), _failed(step)]


def _succeeded(view: RunView, step: Step) -> Finding:
    if step.phase is RunPhase.SUCCEEDED:
        return Finding(Condition.SUCCEEDED, True, step.reason, _what_was_trained(view, step))
    if step.phase is RunPhase.FAILED:
        return Finding(
            Condition.SUCCEEDED, False, NOT_SUCCEEDED, "the run has failed; the condition Failed gives the cause"
        )
    return NOT_ENDED[0]


def _failed(step: Step) -> Finding:
    if step.phase is RunPhase.FAILED:
        return Finding(Condition.FAILED, True, step.reason, step.message)
    if step.phase is RunPhase.SUCCEEDED:
        return Finding(Condition.FAILED, False, NOT_FAILED, "the run has succeeded")
    return NOT_ENDED[1]


def _what_was_trained(view: RunView, step: Step) -> str:
    names = ", ".join(_how_far(state) for state in step.states[:16])
    where = view.checkpoint.uri if view.checkpoint is not None else "in the bucket"
    last = "report" if view.current.instance.stage.evaluates else "newest checkpoint"
    return f"trained to the end: {names}; the {last} is {where}"


def _how_far(state: InstanceState) -> str:
    trained, epochs = state.epochs_trained, state.instance.stage.epochs
    if state.instance.stage.evaluates:
        return f"{state.instance.text} (measured)"
    early = f" (stopped early, {trained} of {epochs} epochs)" if trained < epochs else ""
    return f"{state.instance.text}{early}"


def _advisory(view: RunView) -> list[Finding]:
    """Returns the advice of the trainer's watch rules for each instance that trains now, the newest first."""
    advice = []
    for position, instance_view in view.reported.items():
        record = instance_view.progress.record
        whose = f"{view.states[position].instance.text}, " if len(view.reported) > 1 else ""
        advice += [(whose, advisory) for advisory in reversed(record.advisories if record is not None else [])]
    if not advice:
        return []
    reason = "".join(part.capitalize() for part in advice[0][1].rule.split("-"))  # a condition's reason is in CamelCase
    text = "\n".join(f"{whose}{one.rule}, epoch {one.epoch}: {one.message}" for whose, one in advice)
    return [Finding(Condition.ADVISORY, True, reason, text)]


def _degraded_caches(view: RunView) -> list[Finding]:
    """Returns that session caches cannot be used, and in which pods: every step waits for the slowest rank."""
    advice = [(view.states[position], instance.progress.record) for position, instance in view.reported.items()]
    degraded = [(state, record) for state, record in advice if record is not None and record.cache_degraded]
    if not degraded:
        return []
    pods = [text for state, record in degraded for text in _degraded_pods(view, state, record)]
    more = f" and {len(pods) - _NAMED_PODS} more pods" if len(pods) > _NAMED_PODS else ""
    where = f" in {', '.join(pods[:_NAMED_PODS])}{more}" if pods else ""
    text = (
        f"the session cache{where} is full, broken or was emptied; training reads from the store meanwhile and tries "
        "again"
    )
    return [Finding(Condition.SESSION_CACHE_DEGRADED, True, "DiskUnusable", text)]


def _degraded_pods(view: RunView, state: InstanceState, record: ProgressRecord) -> list[str]:
    """Returns each pod that holds such a rank, with its node where it is seen; none from a trainer that names none."""
    seen = {pod.rank: pod for pod in state.pods if pod.attempt == record.attempt}
    by_pod: dict[int, list[str]] = {}
    for rank in sorted(set(record.cache_degraded_ranks)):
        by_pod.setdefault(rank // view.run.procs_per_node, []).append(str(rank))
    run, instance = view.run.identity.name, state.instance
    return [
        f"pod {training_pod_name(run, instance.stage.name, instance.seed, record.attempt, number)}"
        + (f" on node {seen[number].node}" if number in seen else "")
        + f" (rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)})"
        for number, ranks in by_pod.items()
        if number < state.nodes
    ]


def _accepted(view: RunView, step: Step) -> Finding:
    if step.phase is RunPhase.FAILED and (step.reason in SPEC_REASONS or step.reason == "BadSpec"):
        return Finding(Condition.ACCEPTED, False, step.reason, step.message)
    if step.reason == NOT_ALLOWED:
        return Finding(Condition.ACCEPTED, False, NOT_ALLOWED, view.refused_by_policy)
    if view.profile is None:
        unknown = unknown_profile(view.run.storage_profile, view.settings.storage_profiles)
        text = f"{view.run.identity}: {unknown}"
        return Finding(Condition.ACCEPTED, False, "UnknownStorageProfile", text)
    if view.config_hash != view.started_hash:
        text = "spec.config or a stage's config was changed after the start; set the old values again, or create a run"
        return Finding(Condition.ACCEPTED, False, "ConfigChanged", text)
    text = "the spec is valid; its recipe keys are checked by the pods"
    if refused := view.nodes_beyond_policy:
        text = f"{text}; the run goes on with {view.held_nodes} pods: {refused}"
    elif beyond := view.beyond_policy:
        text = f"{text}; it goes on, but would be refused as a new run: {beyond}"
    return Finding(Condition.ACCEPTED, True, "Valid", text)


def _ready(view: RunView, step: Step) -> Finding:
    """Returns whether all ranks train; a pod that does not go is named whatever the run does meanwhile."""
    finding, stays = _ranks_run(view, step), view.pod_that_stays
    return finding if stays is None else replace(finding, message=f"{finding.message}; {_explain_stay(stays)}")


def _ranks_run(view: RunView, step: Step) -> Finding:
    states = [step.states[i] for i in view.positions]
    pods = [pod for state in states for pod in state.attempt_pods]
    wanted = sum(state.nodes for state in states)
    ready = sum(1 for p in pods if p.ready and p.phase == "Running")
    idle = [i for i in view.positions if step.phase_of(i) is not RunPhase.RUNNING]
    if ready == wanted and all(state.active for state in states):
        if idle:
            return Finding(Condition.READY, False, PODS_LOAD, _who_loads(step, idle, states, ready))
        attempts = ", ".join(f"attempt {state.attempt}{_of(state, states)}" for state in states)
        return Finding(Condition.READY, True, "AllRanksRun", f"all {ready} pods of {attempts} run")
    if step.phase in _ENDED:
        return Finding(Condition.READY, False, step.phase.value, _ENDED[step.phase])
    if view.observed.apply_error:
        return Finding(Condition.READY, False, OBJECTS_REFUSED, explain_refusal(view.observed.apply_error))
    waiting = next((p for p in pods if p.waiting_reason), None)
    if waiting is not None:
        text = explain_waiting(waiting, _of_its_volume(view, waiting))
        return Finding(Condition.READY, False, waiting.waiting_reason[:64], text)
    if not any(state.active for state in states):
        return Finding(Condition.READY, False, "NoAttempt", _why_no_attempt(view, step))
    if not idle:
        return Finding(Condition.READY, False, FINISHING, "trained to the end; the pods end one after another")
    if going := terminating_claims(view):
        text = f"session cache claim {', '.join(going.values())} is being deleted; a new one is created when it is gone"
        return Finding(Condition.READY, False, "ClaimTerminating", text)
    return Finding(Condition.READY, False, "PodsStarting", f"{ready} of {wanted} pods run{_first_slow(pods)}")


def _who_loads(step: Step, idle: list[int], states: list[InstanceState], ready: int) -> str:
    """Returns which attempts have pods, all of them, and no step yet."""
    attempts = ", ".join(f"attempt {step.states[i].attempt}{_of(step.states[i], states)}" for i in idle)
    return f"all {ready} pods run; {attempts} loads, and has not reported a step yet"


def _first_slow(pods: list[ObservedPod]) -> str:
    slow = next((pod.name for pod in pods if pod.phase == "Pending"), "")
    return f"; if that lasts, kubectl describe pod {slow} shows what it waits for" if slow else ""


def _of(state: InstanceState, states: list[InstanceState]) -> str:
    return f" of {state.instance.text}" if len(states) > 1 else ""


def _why_no_attempt(view: RunView, step: Step) -> str:
    failed = f"attempt {step.last_failure.attempt if step.last_failure else None} failed"
    if step.phase is RunPhase.RECOVERING and step.blocked:
        return f"{failed}; the next one waits: {step.reason}"
    if step.phase is RunPhase.RECOVERING:
        return f"{failed}; the next one is about to start"
    if step.reason in (OLD_PODS, RESIZING):
        pod = view.awaited(view.live_pods)[0]
        return f"the next attempt begins when pod {pod.name} is gone, or {STAYS_S:.0f} s after its grace period"
    return f"no pods exist yet: {step.reason}"


def _explain_stay(pod: ObservedPod) -> str:
    return (
        f"pod {pod.name} got a stop signal and still exists {STAYS_S:.0f} s after its grace period, though its node "
        f"{pod.node} answers; nothing waits for it, but it keeps its GPUs and its volumes: see kubectl describe pod "
        f"{pod.name}; restart its node, or, if its container has ended, kubectl delete pod {pod.name} --force"
    )


def _of_its_volume(view: RunView, pod: ObservedPod) -> str:
    """What to do where a rank's cache lies on a node that cannot take it; empty where it waits for another thing."""
    if not waits_for_its_volume(view.run, pod):
        return ""
    claim = claim_name(view.run, pod.rank)
    if node := lost_cache_node(view, pod):
        return f"its session cache (claim {claim}) was on node {node}, which is lost: it is recreated empty"
    return (
        f"its session cache (claim {claim}) lies on a node that is gone or full; if that does not change, "
        f"kubectl delete pvc {claim}: it is recreated empty on a node with free resources"
    )


def _progressing(view: RunView, step: Step) -> Finding:
    forged = next((s for s in view.states if s.bucket is not None and s.bucket.fence > s.attempt), None)
    if forged is not None and forged.bucket is not None:
        text = (
            f"the bucket holds an attempt {forged.bucket.fence} of {forged.instance.text}, which the operator has not "
            f"started: the newest is {forged.attempt}; pods stop while that object exists: remove it, and find out "
            "who else writes there"
        )
        return Finding(Condition.PROGRESSING, False, "UnknownAttempt", text)
    if view.progress.refused:
        text = f"{view.progress.refused}; such reports are ignored"
        return Finding(Condition.PROGRESSING, False, "ImplausibleReport", text)
    if step.phase is RunPhase.RUNNING:
        if view.unreadable:
            return Finding(Condition.PROGRESSING, None, "StorageUnavailable", "reports cannot be read")
        return Finding(Condition.PROGRESSING, True, "StepsArrive", f"attempt {view.current.attempt} is training")
    reason = step.reason or step.phase.value
    failure = step.last_failure
    if step.phase is RunPhase.RECOVERING and failure is not None:
        text = f"attempt {failure.attempt} failed: {failure.message or failure.reason}"
        return Finding(Condition.PROGRESSING, False, reason, f"{text}; {_where_it_goes_on(view)}")
    if reason == RESIZING:
        text = (
            f"{view.held_nodes} pods commit a checkpoint and stop; {view.run.nodes} go on from it, as spec.nodes wants"
        )
        return Finding(Condition.PROGRESSING, False, reason, text)
    return Finding(Condition.PROGRESSING, False, reason, _NO_STEPS.get(step.phase, "no attempt trains yet"))


def _where_it_goes_on(view: RunView) -> str:
    if view.checkpoint is None or view.run.checkpoint.resume == "Never":
        return "the next attempt starts the stage from the beginning"
    return f"the next attempt continues from step {view.checkpoint.step}"


def _checkpointed(view: RunView) -> Finding:
    if step := view.current.lost_step:
        text = (
            f"the checkpoint of step {step} was committed, and its manifest is not in the object store any more; what "
            "runs goes on; restore the run's folder before the next attempt, which would end the run"
        )
        return Finding(Condition.CHECKPOINTED, False, CHECKPOINT_MISSING, text)
    evaluates = view.current.instance.stage.evaluates
    if view.checkpoint is None:
        awaited = "measures weights and has no report yet" if evaluates else "has no checkpoint yet"
        return Finding(Condition.CHECKPOINTED, False, "NoCheckpoint", f"this stage {awaited}")
    what = "report of the weights of" if evaluates else ""
    text = f"{what} epoch {view.checkpoint.epoch}, step {view.checkpoint.step}: {view.checkpoint.uri}".lstrip()
    return Finding(Condition.CHECKPOINTED, True, "Committed", text)


def _checkpoints_valid(view: RunView, step: Step) -> Finding:
    for state in view.states:
        if state.checkpoint is not None and state.checkpoint.fault:
            text = (
                f"{state.checkpoint.manifest_key} is no whole checkpoint: {state.checkpoint.fault}; it ends no stage, "
                "and the next attempt continues from an older one; find out who else writes there"
            )
            return Finding(Condition.CHECKPOINTS_VALID, False, "ImplausibleCheckpoint", text)
    corrupt = [key for state in view.states if state.bucket for key in state.bucket.quarantined]
    never = view.run.checkpoint.resume == "Never"  # each attempt sets the earlier ones aside, although they are valid
    if corrupt and not never:
        text = (
            f"{len(corrupt)} corrupt: {', '.join(corrupt[:5])}; {_what_is_used(view)}; look for damage in the object "
            "store, and for who else writes there; corrupt ones are removed when checkpoint.keepLast newer checkpoints "
            "stand"
        )
        return Finding(Condition.CHECKPOINTS_VALID, False, "Quarantined", text)
    failure = step.last_failure
    if failure is not None and failure.reason == NO_VALID_CHECKPOINT:  # the one to begin with: nobody sets it aside
        return Finding(Condition.CHECKPOINTS_VALID, False, NO_VALID_CHECKPOINT, failure.message)
    if corrupt:
        text = f"{len(corrupt)} of earlier attempts are set aside, because checkpoint.resume is Never"
        return Finding(Condition.CHECKPOINTS_VALID, True, "SetAside", text)
    text = "no corrupt checkpoint of this run was found"
    if view.run.checkpoint.origin or any(stage.init_uri for stage in view.run.stages):
        text += "; a pod verifies the one of another run that it begins with"
    return Finding(Condition.CHECKPOINTS_VALID, True, "NoneCorrupt", text)


def _what_is_used(view: RunView) -> str:
    left = view.checkpoint.step if view.checkpoint and view.current.checkpoint is not None else None
    return f"the checkpoint of step {left} is used" if left is not None else "no valid one is left in this stage"


def _suspended(view: RunView, step: Step) -> Finding:
    if step.phase is RunPhase.SUSPENDED:
        but = f" but {view.pod_that_stays.name}, which does not stop" if view.pod_that_stays else ""
        text = f"no pods run{but}; set spec.suspend to false to continue from the newest checkpoint"
        return Finding(Condition.SUSPENDED, True, "Suspended", text)
    if step.phase is RunPhase.CHECKPOINTING and step.reason != RESIZING:
        return Finding(Condition.SUSPENDED, False, SUSPEND_REQUESTED, "the pods commit a checkpoint and stop")
    return Finding(Condition.SUSPENDED, False, "NotAsked", "spec.suspend is false")
