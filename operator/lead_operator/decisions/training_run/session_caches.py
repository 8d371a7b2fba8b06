"""Session caches on volumes of a node's own disk: on which node each rank has its own, and which are made anew. Pure.

Such a volume binds its rank to its node. Where the node is lost, the claim goes with it: what it held is fetched again.
A volume of a zone looks the same from here, because the scheduler says the same of both: it is taken for one of a node.
A claim that runs share is left to people, because others may still train from it.
A claim that somebody deletes goes when no pod mounts it any more. Pods that have ended are kept for their logs, and
would keep it for good: they go with it, and the next pod of the rank is created with the new claim.
"""

from datetime import timedelta

from lead_operator.decisions.failure_policy import is_lost
from lead_operator.decisions.observed import ObservedPod
from lead_operator.decisions.plan import ClaimToDelete, PodToDelete
from lead_operator.decisions.pod_removal import remove
from lead_operator.decisions.training_run.view import RunView
from lead_operator.objects.session_cache_claim import claim_name
from lead_operator.resources.training_run import TrainingRun

# So long a volume may come back: a node reboots with its disk, or an autoscaler makes another node of the zone.
RETURNS_S = 600.0


def cache_nodes(view: RunView) -> tuple[str, ...]:
    """Returns status.cacheNodes: where each rank last used its own claim, by rank; "" where nobody has seen it."""
    if not _owns_claims(view.run):
        return ()
    before = view.observed.status.cache_nodes
    nodes = [*before, *[""] * view.run.nodes][: view.run.nodes]
    now = view.observed.now
    for pod in sorted(view.observed.pods, key=lambda pod: pod.created_at or now):
        if pod.node and pod.rank < view.run.nodes:
            nodes[pod.rank] = pod.node
    return tuple(nodes) if any(nodes) else ()


def lost_caches(view: RunView) -> tuple[ClaimToDelete, ...]:
    """Returns the claims that keep a rank of the current attempt from a place, because their node is lost."""
    claims, found = {claim.name: claim for claim in view.observed.claims}, []
    for pod in view.current.attempt_pods:
        claim = claims.get(claim_name(view.run, pod.rank))
        node = lost_cache_node(view, pod)
        # What a scheduler says of a pod may still be about the claim of before: one made after the pod is never meant.
        if claim is None or claim.deleting or not node or pod.created_at is None or claim.created_at >= pod.created_at:
            continue
        said = f"claim {claim.name} lies on node {node}, which is lost: it is made anew, empty"
        found.append(ClaimToDelete(claim.name, claim.uid, said))
    return tuple(found)


def terminating_claims(view: RunView) -> dict[int, str]:
    """Returns, by rank, the names of the claims that are being deleted: no pod can be started with one of them."""
    if view.run.session_cache.medium != "PersistentVolume":
        return {}
    going = {claim.name for claim in view.observed.claims if claim.deleting}
    names = {rank: claim_name(view.run, rank) for rank in range(view.run.nodes)}
    return {rank: name for rank, name in names.items() if name in going}


def release_claims(view: RunView) -> tuple[PodToDelete, ...]:
    """Returns the deletions of ended pods of earlier attempts that keep a claim from going; by force on a lost node."""
    ranks, deletes = terminating_claims(view).keys(), []
    for state in view.states:
        for pod in state.pods:
            if pod.rank not in ranks or not pod.terminal or pod.lingers or pod.attempt > state.ended:
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
    said = pod.waiting_message.lower().replace("volume's", "volume")
    return run.session_cache.medium == "PersistentVolume" and "volume node affinity" in said


def _owns_claims(run: TrainingRun) -> bool:
    return run.session_cache.medium == "PersistentVolume" and not run.session_cache.shared_claim
