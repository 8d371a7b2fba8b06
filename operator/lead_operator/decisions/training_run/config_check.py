"""Whether the recipe accepts a run's configuration, asked of a check pod while the run waits. Pure.

Only the trainer image has the recipes. A run that can start at once asks nobody: its pods find mistakes in seconds.
One that waits for a cache, a queue, a quota or a free node would find it hours later, when all that was spent.
The answer belongs to one configuration, group size and image, which `check_key` hashes: it is in the pod's name and in
the message of the condition ConfigChecked, so that neither a restarted operator nor a changed status asks twice. A pod
that does not answer holds nothing up; its time counts from the start of its container. What only a condition reports
ends no run; a check pod's record does.
The same pod is asked when spec.nodes changes while a run lives, before anything stops: what the recipe refuses then is
reported and not used.
"""

import hashlib
import json
from dataclasses import replace
from datetime import timedelta

from lead_operator.decisions.conditions import NODES_REFUSED, Finding
from lead_operator.decisions.failure_policy import CORRECT_AND_CREATE
from lead_operator.decisions.formatting import seconds_since, shorten
from lead_operator.decisions.observed import ObservedPod
from lead_operator.decisions.plan import SOON_S, once_each
from lead_operator.decisions.training_run.pod_group import answered_checks, retire_pods
from lead_operator.decisions.training_run.state import Step
from lead_operator.decisions.training_run.view import RunView
from lead_operator.errors import SpecError
from lead_operator.names import Condition, RunPhase, check_pod_name
from lead_operator.objects.check_pod import ACTIVE_S, START_WITHIN_S, build_check_pod
from lead_operator.resources.status_format import MAX_MESSAGE, ConditionStatus
from lead_protocol.check_record import parse_check
from lead_protocol.exit_codes import ExitCode

CHECK_AFTER_S = 10.0  # of waiting: a run that starts within seconds costs no pod
ANSWER_WITHIN_S = float(START_WITHIN_S + ACTIVE_S)  # from the pod's creation, whatever a node's clock shows
_WAITS = ("SchedulingGated", "Unschedulable")
_BEFORE_THE_START = (RunPhase.PENDING, RunPhase.CACHING, RunPhase.STARTING)


def check_key(view: RunView) -> str:
    """Returns eight digits that identify a configuration, its group and its image."""
    run = view.run
    asked = [view.config_hash, run.nodes, run.procs_per_node, view.settings.trainer_image]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:8]


def refused_config(view: RunView) -> Finding | None:
    """Returns why the run ends before it begins: its recipe has refused its configuration."""
    found = _answer(view) if _unstarted(view) and not view.asks_for_other_nodes else None
    return found if found is not None and found.holds is False else None


def config_checked(view: RunView) -> Finding | None:
    """Returns the condition ConfigChecked; None where nobody was asked, or there is no answer yet."""
    recorded, asked = view.observed.status.condition(Condition.CONFIG_CHECKED), _is_asked(view)
    if recorded is not None and (not asked or _is_of(view, recorded)):
        holds = {"True": True, "False": False}.get(recorded.status)
        if holds is not False or (asked and recorded.reason == NODES_REFUSED):
            return Finding(Condition.CONFIG_CHECKED, holds, recorded.reason, recorded.message)
    return _answer(view) if asked else None


def next_nodes(view: RunView) -> int | None:
    """Returns the pods of the next attempt: those of spec.nodes, or of the last one where spec.nodes cannot be used.

    The batch of all ranks stays, so the number of processes has to divide it. None: the recipe has not answered yet.
    """
    if not view.asks_for_other_nodes:
        return view.run.nodes
    if view.nodes_beyond_policy:
        return view.held_nodes
    found = config_checked(view)
    if found is None:
        return None
    return view.held_nodes if found.holds is False else view.run.nodes


def with_config_check(view: RunView, step: Step) -> Step:
    """Returns the step with the check pod that it needs, or without those that nothing waits for any more."""
    if step.phase in (RunPhase.SUCCEEDED, RunPhase.FAILED):
        return step
    mine, waited_s = _own_pod(view), _waited_s(view, step)
    found, live = config_checked(view), tuple(pod for pod in view.observed.checks if not pod.terminal)
    needed = mine if waited_s is not None and found is None else None
    idle = tuple(pod for pod in live if needed is None or pod.uid != needed.uid)
    answered = answered_checks(view.run, view.observed, outlived=not _is_asked(view))
    deletes = once_each(*step.deletes, *answered, *retire_pods(idle, view.run, view.observed))
    step = replace(step, deletes=deletes)
    if waited_s is None or found is not None or view.profile is None:
        return step
    if mine is not None:
        return step.wake(_left_s(view, mine))
    if waited_s < CHECK_AFTER_S:
        return step.wake(max(SOON_S, CHECK_AFTER_S - waited_s))
    try:
        pod = build_check_pod(view.run, check_key(view), profile=view.profile, settings=view.settings)
    except SpecError:  # all stages together are too large for one pod: each checks its own when it starts
        return step
    return replace(step, tries=(pod,))


def _waited_s(view: RunView, step: Step) -> float | None:
    """Seconds for which a run that has trained nothing waits for others; None where it need not be checked."""
    if view.asks_for_other_nodes:
        return CHECK_AFTER_S if _is_asked(view) else None
    if not _unstarted(view) or view.run.suspend or view.refused_by_policy or step.phase not in _BEFORE_THE_START:
        return None
    if step.blocked and step.reason == view.datasets.finding.reason:
        recorded = view.observed.status.condition(Condition.DATASET_READY)
        since = recorded.last_transition_time if recorded is not None and recorded.status == "False" else None
    elif view.observed.apply_error or any(pod.waiting_reason in _WAITS for pod in view.observed.pods):
        since = next((state.attempt_time for state in view.states if state.active), None)
    else:
        return None
    return seconds_since(since, view.observed.now) or 0.0


def _unstarted(view: RunView) -> bool:
    """Whether no container of the run has started: what a check finds now comes before anything was spent."""
    begun = any(state.attempt > 1 or state.ended for state in view.states) or view.restarts.total
    return not begun and all(pod.phase == "Pending" and pod.started_at is None for pod in view.observed.pods)


def _is_asked(view: RunView) -> bool:
    """Whether an answer is of use: nothing was spent yet, or the group is to have another size."""
    return not view.nodes_beyond_policy if view.asks_for_other_nodes else _unstarted(view)


def _own_pod(view: RunView) -> ObservedPod | None:
    name = check_pod_name(view.run.identity.name, check_key(view))
    return next((pod for pod in view.observed.checks if pod.name == name), None)


def _answer(view: RunView) -> Finding | None:
    pod = _own_pod(view)
    if pod is None or pod.deleting:
        return None
    record = parse_check(pod.message.encode(errors="replace")) if pod.terminal else None
    if record is not None and record.accepted and pod.exit_code == ExitCode.DONE:
        text = f"recipe {view.run.recipe} accepts the configuration"
        return Finding(Condition.CONFIG_CHECKED, True, "Accepted", f"{text} {_mark(view)}")
    if record is not None and not record.accepted and pod.exit_code and view.asks_for_other_nodes:
        text = f"{shorten(record.message, MAX_MESSAGE)}; the run goes on with {view.held_nodes}; correct spec.nodes"
        return Finding(Condition.CONFIG_CHECKED, False, NODES_REFUSED, f"{text} {_mark(view)}")
    if record is not None and not record.accepted and pod.exit_code:
        reason = "NoSuchRecipe" if pod.exit_code == ExitCode.NO_SUCH_RECIPE else "BadConfig"
        text = f"{shorten(record.message, MAX_MESSAGE)}{CORRECT_AND_CREATE}"
        return Finding(Condition.CONFIG_CHECKED, False, reason, text)
    if not pod.terminal and _left_s(view, pod) > 0:
        return None
    ran = f"exit code {pod.exit_code}" if pod.terminal else f"none within {ACTIVE_S} s of its start"
    how = pod.reason or pod.waiting_reason or (ran if pod.started_at else f"not started within {START_WITHIN_S} s")
    text = f"check pod {pod.name} gave no answer ({how[:64]}); the run's own pods check the configuration"
    return Finding(Condition.CONFIG_CHECKED, None, "NoAnswer", f"{text} {_mark(view)}")


def _mark(view: RunView) -> str:
    return f"(check {check_key(view)})"


def _is_of(view: RunView, recorded: ConditionStatus) -> bool:
    return recorded.message.endswith(_mark(view))


def _left_s(view: RunView, pod: ObservedPod) -> float:
    """Seconds that a live check pod has left: until its container starts, then until it answers."""
    age_s = _age_s(view, pod)
    if pod.started_at is None:
        return START_WITHIN_S - age_s
    running_s = (view.observed.now - pod.started_at) / timedelta(seconds=1)
    return min(ACTIVE_S - min(running_s, age_s), ANSWER_WITHIN_S - age_s)


def _age_s(view: RunView, pod: ObservedPod) -> float:
    return 0.0 if pod.created_at is None else (view.observed.now - pod.created_at) / timedelta(seconds=1)
