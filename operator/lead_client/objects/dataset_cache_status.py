"""Status of a DatasetCache: generated from crds/datasetcache.yaml by `python -m lead_testing.client_models`; do not edit."""
# One class a mapping of the schema.

from __future__ import annotations

from lead_client.objects.parts import StatusPart


class Display(StatusPart):
    """
    Texts that the columns of kubectl get print. For people: programs read the fields beside it.
    """

    routes: str | None = None
    """
    Routes kept of routes found, such as 9/17.
    """
    shards: str | None = None
    """
    Shards complete of shards wanted, such as 7/12.
    """
    size: str | None = None
    """
    Size of the shards, such as 1.2Gi.
    """
    used_by: str | None = None
    """
    Unfinished TrainingRuns that reference this cache.
    """
    digest: str | None = None
    """
    First 12 digits of the digest.
    """
    rate: str | None = None
    """
    Samples per second, such as 412/s, or bytes per second, such as 52.1Mi/s.
    """
    eta: str | None = None
    """
    Time left at that rate, such as 12m30s.
    """
    stage: str | None = None
    """
    Stages of the build that are running, such as extract,labels; absent for a build without stages.
    """


class Routes(StatusPart):
    """
    Routes of the source.
    """

    kept: int | None = None
    """
    Those that the cache keeps.
    """
    total: int | None = None
    """
    All that were found.
    """


class Shards(StatusPart):
    """
    Shards of the cache.
    """

    done: int | None = None
    """
    Those that are complete.
    """
    total: int | None = None
    """
    Those that the cache will have.
    """


class Pods(StatusPart):
    """
    Its pods.
    """

    done: int | None = None
    """
    Those whose share is done.
    """
    total: int | None = None
    """
    Those that share the stage.
    """


class Samples(StatusPart):
    """
    Its samples; absent until a pod has reported some.
    """

    done: int | None = None
    """
    Those that are made, as the pods report.
    """
    total: int | None = None
    """
    Those of the shares that have reported.
    """


class Stage(StatusPart):
    name: str | None = None
    """
    Name of the stage.
    """
    phase: str | None = None
    """
    Where the stage stands.
    """
    pods: Pods | None = None
    """
    Its pods.
    """
    samples: Samples | None = None
    """
    Its samples; absent until a pod has reported some.
    """
    message: str | None = None
    """
    What it waits for, or why it failed.
    """


class Pods1(StatusPart):
    """
    Build pods of all stages.
    """

    done: int | None = None
    """
    Those whose share is done.
    """
    total: int | None = None
    """
    Those that share the work.
    """


class Speed(StatusPart):
    """
    How fast the build goes, as its pods report, or measured between two numbers of complete shards.
    """

    time: str | None = None
    """
    When it was measured.
    """
    shards: int | None = None
    """
    Shards complete then.
    """
    bytes: int | None = None
    """
    Their size.
    """
    samples: int | None = None
    """
    Samples packed then, those of unfinished shards too.
    """
    milli_samples_per_second: int | None = None
    """
    Thousandths of a sample per second, of all build pods together; absent where a pod reports none.
    """
    bytes_per_second: int | None = None
    """
    Bytes of complete shards per second between the newest two measurements; absent where pods report samples.
    """
    eta_seconds: int | None = None
    """
    Seconds left at that rate.
    """


class Worker(StatusPart):
    stage: str | None = None
    """
    The stage whose share it is; absent for the last one, merge.
    """
    index: int | None = None
    """
    Number of the share.
    """
    attempt: int | None = None
    """
    The newest attempt; raised before its pod is made.
    """
    ended_attempt: int | None = None
    """
    The newest attempt whose failure has been handled.
    """
    created: bool | None = None
    """
    Whether the pod of the newest attempt was seen.
    """
    done: bool | None = None
    """
    Whether the share is done.
    """
    errors: int | None = None
    """
    Attempts that failed by an error; limited by build.maxRetries.
    """
    infrastructure_failures: int | None = None
    """
    Attempts that ended by an infrastructure failure.
    """
    end_time: str | None = None
    """
    When the newest failed attempt was seen.
    """


class Build(StatusPart):
    """
    State of the build that answers the newest spec.
    """

    generation: int | None = None
    """
    Generation of the spec that began it.
    """
    inputs: str | None = None
    """
    Hash of recipe, store, source, collections and config of that spec.
    """
    rebuilds: int | None = None
    """
    How often the whole build was begun again: because the source changed while it was read or after the build had failed, or because the bucket was emptied.
    """
    pods: Pods1 | None = None
    """
    Build pods of all stages.
    """
    speed: Speed | None = None
    """
    How fast the build goes, as its pods report, or measured between two numbers of complete shards.
    """
    workers: list[Worker] | None = None
    """
    One entry a share of the work, stage by stage.
    """


class LastFailure(StatusPart):
    """
    Why the newest failed pod ended.
    """

    time: str | None = None
    """
    When it was seen.
    """
    pod: str | None = None
    """
    The pod.
    """
    node: str | None = None
    """
    Its node.
    """
    exit_code: int | None = None
    """
    Its exit code.
    """
    class_: str | None = None
    """
    UserError, ProgramError or Infrastructure.
    """
    reason: str | None = None
    """
    The reason, in CamelCase.
    """
    message: str | None = None
    """
    The pod's final message.
    """


class Condition(StatusPart):
    type: str | None = None
    """
    What this condition is about.
    """
    status: str | None = None
    """
    Whether it holds.
    """
    observed_generation: int | None = None
    """
    The generation of the spec it answers.
    """
    last_transition_time: str | None = None
    """
    When its status last changed.
    """
    reason: str | None = None
    """
    The reason, in CamelCase.
    """
    message: str | None = None
    """
    A sentence for people, with the remedy.
    """


class DatasetCacheStatus(StatusPart):
    """
    What the operator has seen and done. Written by the operator alone; it can be rebuilt from the cluster and the object store.
    """

    observed_generation: int | None = None
    """
    The generation of the spec that this status answers.
    """
    phase: str | None = None
    """
    A summary of the conditions for people.
    """
    reason: str | None = None
    """
    The reason of the phase, in CamelCase. The message is in the conditions.
    """
    display: Display | None = None
    """
    Texts that the columns of kubectl get print. For people: programs read the fields beside it.
    """
    digest: str | None = None
    """
    Digest of source listing, collections, preparation configuration and builder version. It names the cache.
    """
    manifest_sha256: str | None = None
    """
    SHA-256 of the manifest that the operator has verified and published. Runs read no other.
    """
    uri: str | None = None
    """
    Where the cache lies.
    """
    routes: Routes | None = None
    """
    Routes of the source.
    """
    route_reasons: dict[str, int] | None = None
    """
    Why routes were left out, and how many for each reason.
    """
    samples: int | None = None
    """
    Samples in the cache.
    """
    shards: Shards | None = None
    """
    Shards of the cache.
    """
    percent: int | None = None
    """
    Share of the shards that are complete.
    """
    size_bytes: int | None = None
    """
    Size of the shards.
    """
    used_by: list[str] | None = None
    """
    Unfinished TrainingRuns of the namespace that reference this cache.
    """
    stages: list[Stage] | None = None
    """
    One entry a stage of the build, the last one as merge; absent for a build without stages.
    """
    build: Build | None = None
    """
    State of the build that answers the newest spec.
    """
    last_failure: LastFailure | None = None
    """
    Why the newest failed pod ended.
    """
    start_time: str | None = None
    """
    When the build of this generation began.
    """
    completion_time: str | None = None
    """
    When it ended.
    """
    conditions: list[Condition] | None = None
    """
    Accepted, StorageAvailable, Ready (complete and usable), SourceDrift (the raw data has changed since the build; only for source.prefix), Failed.
    """
