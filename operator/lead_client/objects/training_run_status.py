"""Status of a TrainingRun: generated from crds/trainingrun.yaml by `python -m lead_testing.client_models`; do not edit."""
# One class a mapping of the schema.

from __future__ import annotations

from lead_client.objects.parts import StatusPart


class Display(StatusPart):
    """
    What the columns of kubectl get print, of the stage instance trained now or last. Programs read stages, pods, nodes and sessionCache.
    """

    stage: str | None = None
    """
    Stage, and seed where it has several.
    """
    epoch: str | None = None
    """
    Epochs completed of those wanted, such as 12/31.
    """
    step: str | None = None
    """
    Optimizer steps completed, such as 120/310.
    """
    loss: str | None = None
    """
    Newest training loss.
    """
    rate: str | None = None
    """
    Samples per second of all ranks together, such as 412/s.
    """
    eta: str | None = None
    """
    Time left in the stage, such as 1h12m.
    """
    checkpoint_time: str | None = None
    """
    When the newest checkpoint was committed.
    """
    resumed_from: str | None = None
    """
    Where the newest attempt continued, such as step 120.
    """
    pods: str | None = None
    """
    Pods that run, such as 2/2.
    """
    nodes: str | None = None
    """
    Nodes of the newest attempt's pods.
    """
    cache_hits: str | None = None
    """
    Reads that the session cache answered, such as 93%.
    """
    closed_loop: str | None = None
    """
    Newest driving score and its epoch, such as 71.5% (epoch 12).
    """


class Progress(StatusPart):
    """
    How far it is, as rank 0 reported; of one that has ended, epoch, step and loss remain.
    """

    attempt: int | None = None
    """
    The attempt that reported.
    """
    sequence: int | None = None
    """
    Number of the report in the attempt.
    """
    phase: str | None = None
    """
    What rank 0 is doing.
    """
    epoch: int | None = None
    """
    Epochs completed.
    """
    epochs: int | None = None
    """
    Epochs wanted.
    """
    step: int | None = None
    """
    Optimizer steps completed.
    """
    steps: int | None = None
    """
    Optimizer steps of the stage.
    """
    percent: int | None = None
    """
    Percentage of the stage done.
    """
    loss: str | None = None
    """
    Newest training loss.
    """
    metrics: dict[str, str] | None = None
    """
    Up to 16 of the newest metrics, those first that the recipe chooses.
    """
    milli_samples_per_second: int | None = None
    """
    Thousandths of a sample per second, of all ranks; absent while it does not train.
    """
    eta_seconds: int | None = None
    """
    Seconds left in the stage; absent while it does not train.
    """
    reported_at: str | None = None
    """
    When the newest report was read.
    """
    advanced_at: str | None = None
    """
    When training last advanced; a hang is measured from here.
    """


class Checkpoint(StatusPart):
    """
    The newest committed checkpoint; of a stage of kind Evaluation, its report.
    """

    uri: str | None = None
    """
    Where its files are; checkpoint.from and initFrom.uri take it.
    """
    step: int | None = None
    """
    Optimizer steps completed in it.
    """
    epoch: int | None = None
    """
    Epochs completed in it.
    """
    saved_at: str | None = None
    """
    When it was committed.
    """
    size_bytes: int | None = None
    """
    Size of its files.
    """


class RestartState(StatusPart):
    """
    The operator's counters, for pauses and the limits of failurePolicy.
    """

    ended_attempt: int | None = None
    """
    The newest attempt whose end was handled.
    """
    created: bool | None = None
    """
    Whether all pods of the newest attempt were seen.
    """
    attempt_time: str | None = None
    """
    When the newest attempt was started, or the first of those in a row that never had all pods running.
    """
    failed_attempt: int | None = None
    """
    The newest attempt that failed.
    """
    failed_at: str | None = None
    """
    When that was seen.
    """
    failed_reason: str | None = None
    """
    Why it failed.
    """
    at_step: int | None = None
    """
    Checkpoint step of the newest failures.
    """
    errors_at_step: int | None = None
    """
    Program errors in a row there; limited by failurePolicy.noProgressLimit.
    """
    ends_at_step: int | None = None
    """
    Ends of any kind in a row there; the pause grows with it.
    """


class Stage(StatusPart):
    name: str | None = None
    """
    Name of the stage.
    """
    seed: int | None = None
    """
    Its seed.
    """
    phase: str | None = None
    """
    Its own phase; Running while it trains.
    """
    attempt: int | None = None
    """
    The newest attempt; raised before its pods are made.
    """
    resumed_from_step: int | None = None
    """
    Where the newest attempt continued; absent where it started at 0.
    """
    best: str | None = None
    """
    Best value of the recipe's metric.
    """
    progress: Progress | None = None
    """
    How far it is, as rank 0 reported; of one that has ended, epoch, step and loss remain.
    """
    checkpoint: Checkpoint | None = None
    """
    The newest committed checkpoint; of a stage of kind Evaluation, its report.
    """
    start_time: str | None = None
    """
    When its first attempt was started.
    """
    completion_time: str | None = None
    """
    When its final checkpoint was seen.
    """
    restart_state: RestartState | None = None
    """
    The operator's counters, for pauses and the limits of failurePolicy.
    """


class SeedStatistic(StatusPart):
    stage: str | None = None
    """
    Name of the stage.
    """
    seeds: int | None = None
    """
    How many seeds have finished.
    """
    mean: str | None = None
    """
    Mean over them.
    """
    std: str | None = None
    """
    Sample standard deviation, from two on.
    """


class Dataset(StatusPart):
    name: str | None = None
    """
    Name of the DatasetCache.
    """
    digest: str | None = None
    """
    Its digest when the run started.
    """
    manifest_sha256: str | None = None
    """
    SHA-256 of its manifest then; pods read no other.
    """


class Restarts(StatusPart):
    """
    How often the group was replaced. Suspensions do not count.
    """

    total: int | None = None
    """
    All together.
    """
    program: int | None = None
    """
    After program errors; limited by failurePolicy.maxRestarts.
    """
    infrastructure: int | None = None
    """
    After infrastructure failures; limited by failurePolicy.maxInfraRestarts.
    """
    voluntary: int | None = None
    """
    After a stop from outside (kubectl delete pod), a group that never had all pods, or a step too large for memory; not limited.
    """


class LastFailure(StatusPart):
    """
    Why the newest failed attempt ended.
    """

    time: str | None = None
    """
    When it was seen.
    """
    stage: str | None = None
    """
    Stage of the attempt.
    """
    seed: int | None = None
    """
    Seed of the attempt.
    """
    attempt: int | None = None
    """
    Number of the attempt.
    """
    pod: str | None = None
    """
    The pod whose failure is the root cause.
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
    UserError, ProgramError, Infrastructure or Stopped.
    """
    reason: str | None = None
    """
    In CamelCase.
    """
    message: str | None = None
    """
    The pod's final message.
    """


class Pods(StatusPart):
    """
    Pods of the newest attempt.
    """

    desired: int | None = None
    """
    How many there should be.
    """
    ready: int | None = None
    """
    How many run.
    """


class SessionCache(StatusPart):
    """
    Reads and loading time of all ranks of the attempt that reported last.
    """

    hits: int | None = None
    """
    Reads that the cache answered.
    """
    misses: int | None = None
    """
    Reads that went to the object store.
    """
    fetched_bytes: int | None = None
    """
    Bytes read from the object store.
    """
    fetched_twice_bytes: int | None = None
    """
    Bytes requested again, as the first answer was late.
    """
    corrupt: int | None = None
    """
    Copies on disk dropped for their checksum.
    """
    loading_milliseconds: dict[str, int] | None = None
    """
    Milliseconds of loading by activity: fetch waits for the object store, the others are the loader's own.
    """


class Success(StatusPart):
    """
    Percentage of all routes, by rule.
    """

    whole_route: str | None = None
    """
    Whole route, no collision, no red light.
    """
    bench2_drive: str | None = None
    """
    Finished, with no infraction but of minimum speed.
    """


class Best(StatusPart):
    """
    The best of this stage and seed, by regression.metric.
    """

    epoch: int | None = None
    """
    Epochs completed in its weights.
    """
    score: str | None = None
    """
    Its metric, in percent.
    """
    uri: str | None = None
    """
    Where its result files are.
    """


class Drive(StatusPart):
    """
    The newest attempt to drive.
    """

    attempt: int | None = None
    """
    Its number; raised before its pod is made.
    """
    stage: str | None = None
    """
    Stage of the weights.
    """
    seed: int | None = None
    """
    Seed of the weights.
    """
    epoch: int | None = None
    """
    Epochs completed in the weights.
    """
    phase: str | None = None
    """
    Retrying failed once; Stopped was suspended.
    """
    tries: int | None = None
    """
    Attempts for this evaluation.
    """
    requested: str | None = None
    """
    The annotation that asked for it.
    """
    created: bool | None = None
    """
    Whether its pod was seen.
    """
    start_time: str | None = None
    """
    When it was started.
    """
    end_time: str | None = None
    """
    When its end was seen.
    """
    message: str | None = None
    """
    Why it failed.
    """


class DrivenItem(StatusPart):
    stage: str | None = None
    """
    Name of the stage.
    """
    seed: int | None = None
    """
    Its seed.
    """
    epoch: int | None = None
    """
    Epochs of the newest weights driven, or failed twice.
    """


class ClosedLoop(StatusPart):
    """
    The newest result of driving, and the attempt that drives.
    """

    attempt: int | None = None
    """
    Attempt of this result.
    """
    stage: str | None = None
    """
    Stage of the weights.
    """
    seed: int | None = None
    """
    Seed of the weights.
    """
    epoch: int | None = None
    """
    Epochs completed in the weights.
    """
    driving_score: str | None = None
    """
    Mean of routes with a record, in percent.
    """
    route_completion: str | None = None
    """
    Mean of routes with a record, in percent.
    """
    success: Success | None = None
    """
    Percentage of all routes, by rule.
    """
    infractions_per_km: dict[str, str] | None = None
    """
    By kind, as the Leaderboard names them.
    """
    interventions: int | None = None
    """
    Routes that the Leaderboard ended.
    """
    max_acceleration: str | None = None
    """
    In m/s^2, where motion was logged.
    """
    max_jerk: str | None = None
    """
    In m/s^3, where motion was logged.
    """
    routes: int | None = None
    """
    Routes that were to be driven.
    """
    recorded: int | None = None
    """
    Those of them with a record.
    """
    uri: str | None = None
    """
    Where the result files are.
    """
    saved_at: str | None = None
    """
    When the result was committed.
    """
    best: Best | None = None
    """
    The best of this stage and seed, by regression.metric.
    """
    drive: Drive | None = None
    """
    The newest attempt to drive.
    """
    driven: list[DrivenItem] | None = None
    """
    Up to where each stage and seed is done.
    """
    requested: str | None = None
    """
    Newest annotation answered.
    """


class Condition(StatusPart):
    type: str | None = None
    """
    What it is about.
    """
    status: str | None = None
    """
    Whether it holds.
    """
    observed_generation: int | None = None
    """
    Generation of the spec that it answers.
    """
    last_transition_time: str | None = None
    """
    When its status last changed.
    """
    reason: str | None = None
    """
    In CamelCase.
    """
    message: str | None = None
    """
    A sentence for people, with the remedy.
    """


class TrainingRunStatus(StatusPart):
    """
    Written by the operator alone; it can be rebuilt from the cluster and the object store.
    """

    observed_generation: int | None = None
    """
    Generation of the spec that it answers.
    """
    phase: str | None = None
    """
    A summary of the conditions. Pending waits for something that is missing; Caching for a dataset cache; Starting has pods that do not train yet; Checkpointing stops on request; Recovering starts again after a failure.
    """
    reason: str | None = None
    """
    Reason of the phase; its message is in the conditions.
    """
    display: Display | None = None
    """
    What the columns of kubectl get print, of the stage instance trained now or last. Programs read stages, pods, nodes and sessionCache.
    """
    config_hash: str | None = None
    """
    SHA-256 of the configuration at the start.
    """
    stages: list[Stage] | None = None
    """
    One entry a stage instance, in training order.
    """
    seed_statistics: list[SeedStatistic] | None = None
    """
    Of each stage with several seeds, the best metric over those finished.
    """
    datasets: list[Dataset] | None = None
    """
    The caches that this run trains on, by content.
    """
    restarts: Restarts | None = None
    """
    How often the group was replaced. Suspensions do not count.
    """
    last_failure: LastFailure | None = None
    """
    Why the newest failed attempt ended.
    """
    pods: Pods | None = None
    """
    Pods of the newest attempt.
    """
    nodes: list[str] | None = None
    """
    Nodes of the newest attempt's pods.
    """
    cache_nodes: list[str] | None = None
    """
    Where each rank last had a session cache of its own.
    """
    session_cache: SessionCache | None = None
    """
    Reads and loading time of all ranks of the attempt that reported last.
    """
    closed_loop: ClosedLoop | None = None
    """
    The newest result of driving, and the attempt that drives.
    """
    start_time: str | None = None
    """
    When the first pods were made, or those after the last suspension.
    """
    completion_time: str | None = None
    """
    When the run ended.
    """
    conditions: list[Condition] | None = None
    """
    Accepted, ConfigChecked, StorageAvailable, DatasetReady, Ready, Progressing (steps arrive), Checkpointed, CheckpointsValid, SessionCacheDegraded, Advisory (a watch rule), ClosedLoop, Suspended, Succeeded, Failed.
    """
