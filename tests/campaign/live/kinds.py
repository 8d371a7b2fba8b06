"""The kinds of faults that live runs meet: how each strikes, what it may cost, and what it may make the run report.

A fault strikes, lasts, and takes back what it did; what it costs is held against `status.restarts`, and a Warning that
none of the faults of a run explains is a violation.
"""

from collections.abc import Callable
from dataclasses import dataclass

from campaign.live import on_the_cluster as c
from campaign.live import on_the_run as r
from campaign.live import on_the_store as s
from campaign.live.judge import Cost
from campaign.live.scene import LiveRun

Strike = Callable[[LiveRun], None]

FREE = Cost()
CRASH = Cost(1, ("program",), 1)  # a rank that dies
STOP = Cost(1, ("voluntary", "infrastructure"))  # it commits and stops; or, where it cannot in time, it is taken away
TAKEN = Cost(1, ("infrastructure", "voluntary"))
NOT_STARTED = Cost(1, ("infrastructure",))
MAYBE_CRASH = Cost(1, ("program", "infrastructure", "voluntary"))

_DEATH = ("ProgramError", "Killed", "Error", "OOMKilled")
_STOPPED = ("StoppedUnasked", "PodDeleted", "PodGone", "DeletionByTaintManager", "EvictionByEvictionAPI", "PodStays")
_STORE = ("StorageUnavailable", "StoreUnavailable", "EndNotRecorded")
_HELD = ("ObjectsRefused", "FailedCreate")
_CORRUPT = ("Quarantined", "ImplausibleCheckpoint", "CheckpointMissing", *_DEATH)


@dataclass(frozen=True)
class Kind:
    """One kind of fault."""

    strike: Strike
    cost: Cost = FREE
    reasons: tuple[str, ...] = ()  # of the Warnings that it explains
    shared: bool = False  # every run of the release meets it
    others: Cost = FREE  # what a shared one may cost a run that it was not drawn for
    story: str = ""
    ends: str = ""  # the reason of Failed in which it must end
    control: bool = False  # see plan.Drawable
    stalls: bool = False  # no step comes for as long as `rare` may stand still, or the report of one does not
    forges: bool = False  # writes statuses that are not the operator's


def _shared(strike: Strike, *reasons: str, **more: object) -> Kind:
    return Kind(strike, reasons=reasons, shared=True, stalls=True, **more)  # type: ignore[arg-type]


KINDS: dict[str, Kind] = {
    # The pods of one run.
    "a rank gets SIGKILL": Kind(r.kill_rank, CRASH, _DEATH),
    "a pod's main process gets SIGKILL (137)": Kind(r.kill_main, CRASH, _DEATH),
    "a rank gets SIGTERM": Kind(r.term_rank, STOP, _STOPPED + _STORE),
    "a pod's main process gets SIGTERM": Kind(r.term_main, STOP, _STOPPED + _STORE),
    "a pod is deleted": Kind(r.delete_pod, STOP, _STOPPED),
    "a pod is deleted by force": Kind(r.force_pod, TAKEN, _STOPPED),
    "all pods are deleted": Kind(r.delete_all_pods, STOP, _STOPPED),
    "a pod is evicted": Kind(r.evict_pod, TAKEN, _STOPPED),
    "a deleted pod is held by a foreign finalizer": Kind(r.hold_pod, TAKEN, _STOPPED),
    "somebody removes a pod's labels": Kind(r.unlabel_pod),  # the admission policy refuses it
    "a rank stands still for a moment": Kind(r.pause_rank, stalls=True),
    "a rank hangs": Kind(r.hang_rank, Cost(1, ("program",), 1), ("Hung",)),
    "work of longer than hangTimeoutSeconds is lost": Kind(r.kill_rank, CRASH, _DEATH, story="rare"),
    "ranks cannot reach each other": Kind(r.cut_ranks, story="two", stalls=True),
    "the session cache is wiped": Kind(r.wipe_cache, FREE, ("DiskUnusable",)),
    "the claim of the session cache is deleted": Kind(r.delete_claim, CRASH, _DEATH, story="warm"),
    # What people do to one run.
    "suspended and resumed at once": Kind(r.suspend_briefly, STOP, _STOPPED),
    "suspend is toggled ten times": Kind(r.toggle_suspend, STOP, _STOPPED),
    "the run's Service is deleted": Kind(r.delete_service),
    "the status is erased": Kind(r.erase_status),
    "the status is forged as Succeeded": Kind(r.forge_success, FREE, ("StatusRestored",), forges=True),
    "the status is forged as Failed": Kind(r.forge_failure, FREE, ("StatusRestored", "Failed"), forges=True),
    "the restart state in the status is forged": Kind(r.forge_restart_state, FREE, ("StatusRestored",), forges=True),
    # What lies in the bucket.
    "the newest checkpoint is flipped": Kind(s.flip_newest, CRASH, _CORRUPT),
    "the newest checkpoint is cut": Kind(s.cut_newest, CRASH, _CORRUPT),
    "the newest checkpoint's weights are deleted": Kind(s.delete_newest, CRASH, _CORRUPT),
    "the newest manifest is deleted": Kind(s.delete_manifest, CRASH, _CORRUPT),
    "the newest manifest is garbage": Kind(s.garble_manifest, CRASH, _CORRUPT),
    "the progress report is cut": Kind(s.cut_progress, FREE, ("ImplausibleReport",), stalls=True),
    "a later attempt is forged": Kind(
        s.forge_fence, Cost(6, ("infrastructure", "voluntary")), ("Fenced", "UnknownAttempt")
    ),
    "all manifests are deleted": Kind(s.delete_manifests, CRASH, _CORRUPT, ends="NoValidCheckpoint"),
    "all checkpoints are flipped": Kind(s.flip_all, CRASH, _CORRUPT, ends="NoValidCheckpoint"),
    # The store, for all runs.
    "the store's pod is deleted": _shared(s.delete_pod, *_STORE),
    "the store gets SIGKILL": _shared(s.kill, *_STORE),
    "the store stands still": _shared(s.pause, *_STORE),
    # A rank that begins just then gives up after 60 s.
    "the store stands still beyond every timeout of a call": _shared(
        s.pause_long, *_STORE, control=True, cost=NOT_STARTED, others=NOT_STARTED
    ),
    "the relay of the token keys gets SIGKILL": _shared(s.kill_relay, *_STORE),
    "somebody else answers 404 for the store": _shared(s.answered_404, *_STORE),
    "somebody else answers 503 for the store": _shared(s.answered_503, *_STORE),
    "somebody else answers a page for the store": _shared(s.answered_page, *_STORE),
    "somebody else answers 404 while a run resumes": _shared(s.answered_at_a_kill, *_STORE, *_DEATH, cost=CRASH),
    "the store is full": _shared(s.full, *_STORE, "StoreFull"),
    "a pod cannot reach the store": Kind(s.cut_pod, FREE, _STORE, stalls=True),
    "a pod cannot reach the store beyond every timeout of a call": Kind(s.cut_pod_long, FREE, _STORE, stalls=True),
    # The operator.
    "the operator's pod is deleted": _shared(c.delete_operator),
    "the operator gets SIGKILL, twice": _shared(c.kill_operator_twice),
    "the operator stands still beyond its lease": _shared(c.pause_operator),
    "no operator for a while": _shared(c.operator_away, control=True),
    "the lease is deleted": _shared(c.delete_lease),
    "the lease is somebody else's": _shared(c.steal_lease),
    # The cluster.
    "the API server stands still": _shared(c.pause_api, control=True),
    "the API server is killed": _shared(c.kill_api, control=True),
    "etcd stands still": _shared(c.pause_etcd, control=True),
    "the kubelet stands still": _shared(c.pause_kubelet, control=True),
    # A container that it was starting just then is one that never ran.
    "the kubelet is killed": _shared(
        c.kill_kubelet, "ContainerNotStarted", control=True, cost=NOT_STARTED, others=NOT_STARTED
    ),
    "the name server stands still": _shared(c.pause_dns, *_STORE),
    "the scheduler stands still at a kill": _shared(c.pause_scheduler, *_DEATH, cost=CRASH),
    "the controller manager stands still at a deletion": _shared(c.pause_controllers, *_STOPPED, cost=STOP),
    "the node is cordoned at a kill": _shared(c.cordon, *_DEATH, cost=CRASH),
    "the run's pods are drained": _shared(c.drain, *_STOPPED, cost=Cost(1, TAKEN.accounts)),
    "pods make room for one of higher priority": _shared(
        c.preempt, *_STOPPED, *_STORE, "PreemptionByScheduler", cost=Cost(1, TAKEN.accounts),
        others=Cost(1, TAKEN.accounts),
    ),
    # What administrators do.
    "helm upgrade with other values": _shared(c.upgrade, control=True),
    "helm upgrade and the operator killed in it": _shared(c.upgrade_and_kill, control=True),
    "a wrong trainer image at a kill, corrected": _shared(
        c.wrong_image, *_DEATH, "ImagePullBackOff", "ErrImagePull", "ImageChanged", control=True,
        cost=Cost(2, ("program", "voluntary"), 1), others=Cost(1, ("voluntary",)),
    ),
    "a quota refuses pods at a kill": _shared(c.quota, *_DEATH, *_HELD, cost=CRASH),
    "the pods' ServiceAccount is deleted at a kill": _shared(c.delete_account, *_DEATH, *_HELD, cost=CRASH),
    "the store's CA is deleted at a kill": _shared(c.delete_authority, *_DEATH, "FailedMount", cost=CRASH),
    "the operator's rights are taken away": _shared(c.take_rights, *_HELD, *_STORE),
    "the DatasetCache is deleted and created again": _shared(
        c.recreate_cache, *_DEATH, "CacheNotFound", "CacheFailed", cost=CRASH
    ),
}  # fmt: skip
