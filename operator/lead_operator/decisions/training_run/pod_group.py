"""The pods of a run as a group: what to make of it, what to stop of it. Pure."""

from dataclasses import replace

from lead_operator import names
from lead_operator.decisions.observed import ObservedPod, ObservedRun
from lead_operator.decisions.plan import PodToAnnotate, PodToDelete
from lead_operator.decisions.pod_removal import once_each, remove_ended, retire
from lead_operator.decisions.refusals import RUN_FIELDS, explain_invalid
from lead_operator.decisions.training_run.instance_state import InstanceState
from lead_operator.decisions.training_run.session_caches import terminating_claims
from lead_operator.decisions.training_run.step import Step
from lead_operator.decisions.training_run.view import RunView
from lead_operator.errors import SpecError
from lead_operator.objects.rank_service import build_rank_service
from lead_operator.objects.session_cache_claim import build_session_cache_claim
from lead_operator.objects.training_pod import build_training_pod
from lead_operator.resources.status_format import JsonObject
from lead_operator.resources.training_run import TrainingRun

VOLCANO = "volcano"  # name of its scheduler


def retire_pods(pods: tuple[ObservedPod, ...], run: TrainingRun, observed: ObservedRun) -> tuple[PodToDelete, ...]:
    """Returns the deletions that stop these pods: with their own grace, or by force where the node is lost."""
    return retire(pods, now=observed.now, node_loss_s=run.failure_policy.node_loss_s)


def tell_last_checkpoint(view: RunView, state: InstanceState) -> tuple[PodToAnnotate, ...]:
    """Returns the annotations by which Volcano picks victims that lose least: the time of the newest checkpoint."""
    saved_at = view.checkpoint.saved_at if view.checkpoint else None
    if view.run.scheduling.scheduler != VOLCANO or not saved_at:
        return ()
    key = names.Annotation.LAST_CHECKPOINT
    told = (p for p in state.attempt_pods if not p.terminal and not p.deleting and p.checkpoint_time != saved_at)
    return tuple(PodToAnnotate(p.name, p.uid, key, saved_at) for p in told)


def clean_pods(run: TrainingRun, observed: ObservedRun) -> tuple[PodToDelete, ...]:
    """Returns the deletions when a run has ended: of what still runs, and of what cleanPodPolicy does not keep."""
    everything = run.clean_pod_policy == "All"
    ended = remove_ended(observed.pods) if everything else ()
    trained = observed.status.holds(names.Condition.SUCCEEDED)
    checks = answered_checks(run, observed, outlived=everything or trained)
    live = retire_pods((*observed.pods, *observed.checks), run, observed)
    return once_each(*ended, *checks, *live)


def answered_checks(run: TrainingRun, observed: ObservedRun, *, outlived: bool) -> tuple[PodToDelete, ...]:
    """Returns the deletions of check pods that have answered, once their logs are `outlived`: the run has its own."""
    return remove_ended(observed.checks) if outlived and run.clean_pod_policy != "None" else ()


def release_pods(view: RunView, step: Step) -> Step:
    """Returns the step with the deletion of pods that only hold their nodes' resources; first their end is booked."""
    over = tuple(p for state in step.states for p in state.pods if p.lingers and p.attempt <= state.ended)
    released = retire_pods(over, view.run, view.observed)
    return replace(step, deletes=once_each(*step.deletes, *released), claim=step.claim or bool(released))


def _refuse_invalid(view: RunView) -> None:
    """Raises SpecError where the API server holds the very first pods of a run for invalid."""
    invalid = explain_invalid(view.observed.apply_error, RUN_FIELDS, view.run.resources, view.run.pod_settings)
    if invalid and not view.observed.pods and not any(state.created or state.ended for state in view.states):
        raise SpecError(
            f"{view.run.identity}: pods made of this spec are invalid: {invalid}; a finished run stays finished: "
            "correct the spec and create the run anew"
        )


def build_group_objects(view: RunView, state: InstanceState) -> tuple[JsonObject, ...]:
    """The service, the claims and, until all pods were seen once, the pods that are missing.

    A rank whose claim is being deleted gets its pod when it has a new claim.
    """
    run, observed = view.run, view.observed
    _refuse_invalid(view)
    objects: list[JsonObject] = []
    if not observed.service_exists:
        objects.append(build_rank_service(run))
    if run.session_cache.medium == "PersistentVolume":
        missing = [build_session_cache_claim(run, rank) for rank in range(run.nodes)]
        held = {claim.name for claim in observed.claims}
        objects += [claim for claim in missing if claim["metadata"]["name"] not in held]
    seen = {p.rank for p in state.attempt_pods} | terminating_claims(view).keys()
    if not state.created and view.profile is not None and view.datasets.sources:
        objects += [
            build_training_pod(
                run,
                state.instance,
                attempt=state.attempt,
                rank=rank,
                datasets=view.datasets.sources,
                profile=view.profile,
                settings=view.settings,
            )
            for rank in range(run.nodes)
            if rank not in seen
        ]
    return tuple(objects)
