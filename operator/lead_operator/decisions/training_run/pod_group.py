"""The pods and claims of a run as a group: what to create, what to stop, which claims to recreate. Pure.

A session cache on a volume of a node's own disk binds its rank to its node. Where the node is lost, the claim goes with
it: what it held is fetched again. A zonal volume cannot be distinguished, because the scheduler reports the same for
both: it is taken for one of a node. A claim that runs share is left to people, because others may still train from it.
A claim that somebody deletes goes when no pod mounts it any more. Pods that have ended are kept for their logs, and
would keep it for good: they go with it, and the next pod of the rank is created with the new claim.
"""

from dataclasses import replace
from datetime import timedelta

from lead_operator import names
from lead_operator.decisions.failure_policy import is_lost
from lead_operator.decisions.observed import ObservedPod, ObservedRun
from lead_operator.decisions.plan import (
    ClaimToDelete,
    PodToAnnotate,
    PodToDelete,
    once_each,
    remove,
    remove_ended,
    retire,
)
from lead_operator.decisions.remedies import RUN_FIELDS, explain_invalid
from lead_operator.decisions.training_run.state import InstanceState, Step
from lead_operator.decisions.training_run.view import RunView
from lead_operator.errors import SpecError
from lead_operator.objects.service_and_claims import build_rank_service, build_session_cache_claim, claim_name
from lead_operator.objects.training_pod import build_training_pod
from lead_operator.resources.status_format import JsonObject
from lead_operator.resources.training_run import TrainingRun

VOLCANO = "volcano"  # name of its scheduler
# So long a volume may come back: a node reboots with its disk, or an autoscaler makes another node of the zone.
RETURNS_S = 600.0


def retire_pods(pods: tuple[ObservedPod, ...], run: TrainingRun, observed: ObservedRun) -> tuple[PodToDelete, ...]:
    """Returns the deletions that stop these pods: with their own grace, or by force where the node is lost."""
    return retire(pods, now=observed.now, node_loss_s=run.failure_policy.node_loss_s)


def annotate_last_checkpoint(view: RunView, state: InstanceState) -> tuple[PodToAnnotate, ...]:
    """Returns the annotations by which Volcano picks victims that lose least: the time of the newest checkpoint."""
    saved_at = view.checkpoint.saved_at if view.checkpoint else None
    if view.run.scheduling.scheduler != VOLCANO or not saved_at:
        return ()
    key = names.Annotation.LAST_CHECKPOINT
    stale = (p for p in state.attempt_pods if not p.terminal and not p.deleting and p.checkpoint_time != saved_at)
    return tuple(PodToAnnotate(p.name, p.uid, key, saved_at) for p in stale)


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
    """Returns the step with the deletion of pods that only hold their nodes' resources; first their end is recorded."""
    over = tuple(p for state in step.states for p in state.pods if p.kept_by_sidecar and p.attempt <= state.ended)
    released = retire_pods(over, view.run, view.observed)
    return replace(step, deletes=once_each(*step.deletes, *released), claim=step.claim or bool(released))


def _refuse_invalid(view: RunView) -> None:
    """Raises SpecError where the API server holds the very first pods of a run for invalid."""
    invalid = explain_invalid(view.observed.apply_error, RUN_FIELDS, view.run.resources, view.run.pod_settings)
    if invalid and not view.observed.pods and not any(state.created or state.ended for state in view.states):
        raise SpecError(
            f"{view.run.identity}: pods made of this spec are invalid: {invalid}; a finished run never restarts: "
            "correct the spec and create the run again"
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
        missing = [build_session_cache_claim(run, rank) for rank in range(state.nodes)]
        held = {claim.name for claim in observed.claims}
        objects += [claim for claim in missing if claim["metadata"]["name"] not in held]
    seen = {p.rank for p in state.attempt_pods} | terminating_claims(view).keys()
    if not state.created and state.nodes_known and view.profile is not None and view.datasets.sources:
        objects += [
            build_training_pod(
                replace(run, nodes=state.nodes),
                state.instance,
                attempt=state.attempt,
                rank=rank,
                datasets=view.datasets.sources,
                profile=view.profile,
                settings=view.settings,
            )
            for rank in range(state.nodes)
            if rank not in seen
        ]
    return tuple(objects)


def cache_nodes(view: RunView) -> tuple[str, ...]:
    """Returns status.cacheNodes: where each rank last used its own claim, by rank; "" where nobody has seen it."""
    if not _owns_claims(view.run):
        return ()
    before = view.observed.status.cache_nodes
    nodes, now = [*before, *[""] * (_ranks(view) - len(before))], view.observed.now
    for pod in sorted(view.observed.pods, key=lambda pod: pod.created_at or now):
        if pod.node and pod.rank < len(nodes):
            nodes[pod.rank] = pod.node
    return tuple(nodes) if any(nodes) else ()


def lost_caches(view: RunView) -> tuple[ClaimToDelete, ...]:
    """Returns the claims that keep a rank of the current attempt from a place, because their node is lost."""
    claims, found = {claim.name: claim for claim in view.observed.claims}, []
    for pod in view.current.attempt_pods:
        claim = claims.get(claim_name(view.run, pod.rank))
        node = lost_cache_node(view, pod)
        # A scheduler's message on a pod may still be about the previous claim: one that is newer than the pod is never
        # meant.
        if claim is None or claim.deleting or not node or pod.created_at is None or claim.created_at >= pod.created_at:
            continue
        reason = f"claim {claim.name} is on node {node}, which is lost: it is recreated empty"
        found.append(ClaimToDelete(claim.name, claim.uid, reason))
    return tuple(found)


def terminating_claims(view: RunView) -> dict[int, str]:
    """Returns, by rank, the names of the claims that are being deleted: no pod can be started with one of them."""
    if view.run.session_cache.medium != "PersistentVolume":
        return {}
    going = {claim.name for claim in view.observed.claims if claim.deleting}
    names = {rank: claim_name(view.run, rank) for rank in range(_ranks(view))}
    return {rank: name for rank, name in names.items() if name in going}


def release_claims(view: RunView) -> tuple[PodToDelete, ...]:
    """Returns the deletions of ended pods of earlier attempts that keep a claim from going; by force on a lost node."""
    ranks, deletes = terminating_claims(view).keys(), []
    for state in view.states:
        for pod in state.pods:
            if pod.rank not in ranks or not pod.terminal or pod.kept_by_sidecar or pod.attempt > state.ended:
                continue
            if is_lost(pod, now=view.observed.now, node_loss_s=view.run.failure_policy.node_loss_s):
                deletes.append(remove(pod, grace_period_s=0))
            elif not pod.deleting:
                deletes.append(remove(pod))
    return tuple(deletes)


def lost_cache_node(view: RunView, pod: ObservedPod) -> str:
    """Returns the lost node that a waiting pod's own claim ties it to; empty where it waits for another thing."""
    if not waits_for_its_volume(view.run, pod) or not _owns_claims(view.run):
        return ""
    node = dict(enumerate(cache_nodes(view))).get(pod.rank, "")
    since = view.observed.nodes_away.get(node)
    limit = timedelta(seconds=max(view.run.failure_policy.node_loss_s, RETURNS_S))
    return node if since is not None and view.observed.now - since >= limit else ""


def waits_for_its_volume(run: TrainingRun, pod: ObservedPod) -> bool:
    """Returns whether a pod finds no place because its session cache lies on a node that cannot take it."""
    message = pod.waiting_message.lower().replace("volume's", "volume")
    return run.session_cache.medium == "PersistentVolume" and "volume node affinity" in message


def _ranks(view: RunView) -> int:
    """How many ranks may hold a claim: those of the widest group, of the last attempt of an instance or the next."""
    return max(view.run.nodes, *(state.nodes for state in view.states))


def _owns_claims(run: TrainingRun) -> bool:
    return run.session_cache.medium == "PersistentVolume" and not run.session_cache.shared_claim
