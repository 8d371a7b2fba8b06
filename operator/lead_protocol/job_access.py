"""What each kind of pod needs of the object store: jobs to prefixes; pure.

Shared weights are not listed: a job does not know the profile's, and a session policy only narrows the role, which may
read no other namespace's.
"""

from lead_protocol.job import BuildJob, ClosedLoopJob, TrainJob
from lead_protocol.object_keys import CacheKeys, ControlKeys, RunKeys, caches_prefix, runs_prefix
from lead_protocol.store.session_policy import MAX_NAME_CHARS, Access

WEIGHTS = "weights/"


def job_access(job: TrainJob | BuildJob | ClosedLoopJob) -> Access:
    """Returns all that a pod of this job may ask the store for."""
    if isinstance(job, ClosedLoopJob):
        return _of_closed_loop(job)
    return _of_run(job) if isinstance(job, TrainJob) else _of_build(job)


def weights_access() -> Access:
    """Returns what reading backbone weights takes."""
    return Access("weights", reads=(WEIGHTS,), writes=())


def _of_run(job: TrainJob) -> Access:
    namespace, uid = job.owner.namespace, job.owner.uid
    # Of runs all of the namespace: a run may begin with a checkpoint of another (initFrom, checkpoint.from).
    others = (runs_prefix(namespace), ControlKeys(namespace, uid).prefix, WEIGHTS)
    caches = tuple(CacheKeys(namespace, digest).prefix for digest in sorted({source.digest for source in job.datasets}))
    return Access(
        name=f"run-{uid}"[:MAX_NAME_CHARS],
        reads=(*caches, *others),
        writes=(RunKeys(namespace, uid).prefix,),
        reads_in_short=(caches_prefix(namespace), *others),
    )


def _of_build(job: BuildJob) -> Access:
    own = job.keys.prefix
    source = (f"{job.source.prefix.rstrip('/')}/",) if job.source.kind == "store" else ()
    return Access(
        name=f"build-{job.owner.uid}"[:MAX_NAME_CHARS],
        reads=(*source, own, caches_prefix(job.owner.namespace)),
        writes=(own,),
    )


def _of_closed_loop(job: ClosedLoopJob) -> Access:
    """The run's own checkpoints and the routes; results are written where no checkpoint lies."""
    routes = (f"{job.routes_prefix.rstrip('/')}/",) if job.routes_prefix else ()
    return Access(
        name=f"closed-loop-{job.owner.uid}"[:MAX_NAME_CHARS],
        reads=(job.instance.prefix, job.keys.prefix, *routes),
        writes=(job.keys.prefix,),
    )
