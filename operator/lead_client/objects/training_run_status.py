"""Status of a TrainingRun: generated from crds/trainingrun.yaml by `python -m lead_testing.client_models`; do not edit."""
# One class a mapping of the schema.

from __future__ import annotations

from lead_client.objects.parts import StatusPart


class Display(StatusPart):
    """
    Texts that the columns of kubectl get print, of the stage instance that is trained now, or was last. For people: programs read stages, pods, nodes and sessionCache.
    """

    stage: str | None = None
    """
    Name of the stage, and the seed where the stage has several.
    """
    epoch: str | None = None
    """
    Epochs completed of epochs wanted, such as 12/31.
    """
    step: str | None = None
    """
    Optimizer steps completed of those of the stage, such as 120/310.
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
    When the newest checkpoint was committed; the CKPT column prints its age.
    """
    resumed_from: str | None = None
    """
    The step that the newest attempt continued from, such as step 120.
    """
    pods: str | None = None
    """
    Pods that run of pods wanted, such as 2/2.
    """
    nodes: str | None = None
    """
    Nodes of the newest attempt's pods.
    """
    cache_hits: str | None = None
    """
    Share of reads that the session cache answered, such as 93%.
    """
    closed_loop: str | None = None
    """
    Driving score of the newest closed loop and the epoch of its weights, such as 71.5% (epoch 12).
    """


class Progress(StatusPart):
    """
    How far the instance is, as its rank 0 reported it. Of one that has ended, epoch, step and loss remain.
    """

    attempt: int | None = None
    """
    The attempt that reported.
    """
    sequence: int | None = None
    """
    Number of the report within the attempt.
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
    Optimizer steps completed in this stage.
    """
    steps: int | None = None
    """
    Optimizer steps of the whole stage.
    """
    percent: int | None = None
    """
    Percentage of the stage that is done.
    """
    loss: str | None = None
    """
    Newest training loss, as a decimal number.
    """
    metrics: dict[str, str] | None = None
    """
    The recipe's newest metrics, as decimal numbers.
    """
    milli_samples_per_second: int | None = None
    """
    Thousandths of a sample per second, of all ranks together; absent while the instance does not train.
    """
    eta_seconds: int | None = None
    """
    Seconds left in the stage; absent while the instance does not train.
    """
    reported_at: str | None = None
    """
    When the newest report was read.
    """
    advanced_at: str | None = None
    """
    When the training last advanced; a hang is measured from here.
    """


class Checkpoint(StatusPart):
    """
    The newest committed checkpoint of the instance; of a stage of kind Evaluation, its report.
    """

    uri: str | None = None
    """
    Where its files are; checkpoint.from and initFrom.uri of a run take it.
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
    The operator's own counters of this instance; the next pause and the limits of failurePolicy depend on them.
    """

    ended_attempt: int | None = None
    """
    The newest attempt whose end has been handled.
    """
    created: bool | None = None
    """
    Whether all pods of the newest attempt were seen.
    """
    attempt_time: str | None = None
    """
    When the newest attempt was started, or the first of several in a row that never had all of their pods running.
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
    Step of the checkpoint that the newest failures left off at.
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
    The newest attempt; raised before the pods of that attempt are made.
    """
    resumed_from_step: int | None = None
    """
    The step that the newest attempt continued from; absent where it started at 0.
    """
    best: str | None = None
    """
    Best value of the recipe's metric, as a decimal number.
    """
    progress: Progress | None = None
    """
    How far the instance is, as its rank 0 reported it. Of one that has ended, epoch, step and loss remain.
    """
    checkpoint: Checkpoint | None = None
    """
    The newest committed checkpoint of the instance; of a stage of kind Evaluation, its report.
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
    The operator's own counters of this instance; the next pause and the limits of failurePolicy depend on them.
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
    Sample standard deviation, from two seeds on.
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
    After a stop from outside (kubectl delete pod), a group that never had all of its pods, or a step too large for memory; not limited.
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
    The reason, in CamelCase.
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
    Reads through the session cache and time spent in loading, of all ranks of the attempt that reported last.
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
    Bytes requested a second time, because the first answer was late.
    """
    corrupt: int | None = None
    """
    Copies on the disk that did not match their checksum and were dropped.
    """
    loading_milliseconds: dict[str, int] | None = None
    """
    Milliseconds that loading spent, by activity: fetch waits for the object store, the others are the loader's own.
    """


class Success(StatusPart):
    """
    Share of all routes that count as a success, in percent, by rule.
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
    The best result of the same stage and seed so far, by regression.metric.
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
    Its number in the run; raised before its pod is made.
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
    Retrying has failed once; Stopped was ended by a suspension.
    """
    tries: int | None = None
    """
    How many attempts there were for this evaluation.
    """
    requested: str | None = None
    """
    Value of the annotation that asked for it.
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
    Epochs completed in the newest weights that were driven, or failed twice.
    """


class ClosedLoop(StatusPart):
    """
    The newest result of driving in the simulator, and the attempt that drives.
    """

    attempt: int | None = None
    """
    The attempt that this result is of.
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
    Mean driving score of routes with a record, in percent.
    """
    route_completion: str | None = None
    """
    Mean route completion of routes with a record, in percent.
    """
    success: Success | None = None
    """
    Share of all routes that count as a success, in percent, by rule.
    """
    infractions_per_km: dict[str, str] | None = None
    """
    By kind, as the Leaderboard names them, in decimal numbers.
    """
    interventions: int | None = None
    """
    Routes that the Leaderboard ended.
    """
    max_acceleration: str | None = None
    """
    Greatest acceleration in m/s^2, where motion was logged.
    """
    max_jerk: str | None = None
    """
    Greatest jerk in m/s^3, where motion was logged.
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
    The best result of the same stage and seed so far, by regression.metric.
    """
    drive: Drive | None = None
    """
    The newest attempt to drive.
    """
    driven: list[DrivenItem] | None = None
    """
    Up to which epoch evaluations of each stage and seed are over.
    """
    requested: str | None = None
    """
    Newest value of the annotation that was answered.
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


class TrainingRunStatus(StatusPart):
    """
    What the operator has seen and done. Written by the operator alone; it can be rebuilt from the cluster and the object store.
    """

    observed_generation: int | None = None
    """
    The generation of the spec that this status answers.
    """
    phase: str | None = None
    """
    A summary of the conditions for people. Pending waits for something that is missing; Caching waits for a dataset cache; Starting has pods that do not train yet; Checkpointing stops on request; Recovering starts again after a failure.
    """
    reason: str | None = None
    """
    The reason of the phase, in CamelCase. The message is in the conditions.
    """
    display: Display | None = None
    """
    Texts that the columns of kubectl get print, of the stage instance that is trained now, or was last. For people: programs read stages, pods, nodes and sessionCache.
    """
    config_hash: str | None = None
    """
    SHA-256 of the configuration that the run was started with.
    """
    stages: list[Stage] | None = None
    """
    One entry a stage instance, in the order in which they are trained.
    """
    seed_statistics: list[SeedStatistic] | None = None
    """
    For each stage with several seeds, the best metric over the seeds that have finished.
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
    Where each rank last had a session cache of its own, by rank.
    """
    session_cache: SessionCache | None = None
    """
    Reads through the session cache and time spent in loading, of all ranks of the attempt that reported last.
    """
    closed_loop: ClosedLoop | None = None
    """
    The newest result of driving in the simulator, and the attempt that drives.
    """
    start_time: str | None = None
    """
    When the first pods were asked for, or those after the last suspension.
    """
    completion_time: str | None = None
    """
    When the run ended.
    """
    conditions: list[Condition] | None = None
    """
    Accepted, ConfigChecked, StorageAvailable, DatasetReady, Ready, Progressing (new steps arrive), Checkpointed, CheckpointsValid, SessionCacheDegraded, Advisory (of a watch rule), ClosedLoop, Suspended, Succeeded, Failed.
    """
