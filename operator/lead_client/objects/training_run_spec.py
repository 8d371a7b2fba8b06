"""Spec of a TrainingRun: generated from crds/trainingrun.yaml by `python -m lead_testing.client_models`; do not edit."""
# One class a mapping of the schema.

from __future__ import annotations

from typing import Any, Literal

from lead_client.objects.parts import SpecPart


class CacheRef(SpecPart):
    """
    A DatasetCache in the same namespace, built for the same recipe. The run keeps the digest it starts with, also if the cache is rebuilt.
    """

    name: str
    """
    Name of the DatasetCache.
    """


class Dataset(SpecPart):
    cache_ref: CacheRef
    """
    A DatasetCache in the same namespace, built for the same recipe. The run keeps the digest it starts with, also if the cache is rebuilt.
    """


class InitFrom(SpecPart):
    """
    Start from the weights (not the optimizer) of stage or uri. Absent means the recipe's own initialisation.
    """

    stage: str | None = None
    """
    Name of an earlier stage; of its seeds the same one, else its first.
    """
    uri: str | None = None
    """
    A checkpoint of a run in this namespace, as its status.stages[].checkpoint.uri shows it; without checkpoints/… the newest valid one of that stage.
    """


class Stage(SpecPart):
    kind: Literal["Train", "Evaluation"] | None = None
    """
    Train (the default), or Evaluation: the weights that initFrom names are validated as in training, with their stage's config, and a report is committed in place of a checkpoint.
    """
    name: str
    """
    Name of the stage, in pod names and object keys.
    """
    epochs: int | None = None
    """
    How many epochs to train; 31 by default.
    """
    init_from: InitFrom | None = None
    """
    Start from the weights (not the optimizer) of stage or uri. Absent means the recipe's own initialisation.
    """
    seeds: list[int] | None = None
    """
    Train the stage once for each seed, by default [0]. Status shows mean and standard deviation.
    """
    config: dict[str, Any] | None = None
    """
    The recipe's keys that differ in this stage; they win over spec.config, mappings key by key. None by default.
    """


class Checkpoint(SpecPart):
    """
    When to commit checkpoints, besides each stage's end, and which to keep.
    """

    every_epochs: int | None = None
    """
    Commit every N epochs; 0 turns this off. Default: 1.
    """
    every_steps: int | None = None
    """
    Commit every N optimizer steps; 0 turns this off. Default: 0.
    """
    keep_last: int | None = None
    """
    How many of the newest to keep; at least 2, as one may be corrupt. Default: 3.
    """
    keep_best: int | None = None
    """
    How many of the best to keep too, by the recipe's metric. Default: 1.
    """
    keep_every_epochs: int | None = None
    """
    Keep one for good every N epochs; 0 keeps none. Default: 0.
    """
    on_best: bool | None = None
    """
    Commit also after an epoch better than all before, by the recipe's metric. Default: False.
    """
    resume: Literal["Auto", "Never"] | None = None
    """
    After a restart Auto continues from the newest valid checkpoint of the run, Never starts the stage from step 0. Default: Auto.
    """
    from_: str | None = None
    """
    Continue from a checkpoint of another run in this namespace (written as in initFrom.uri), with its optimizer and position, if the first stage has none of its own. Recipe, config and datasets must be equal; epochs may be higher.
    """


class SessionCache(SpecPart):
    """
    Where each pod keeps shards fetched from the object store.
    """

    medium: Literal["EmptyDir", "PersistentVolume"] | None = None
    """
    EmptyDir ends with the pod. PersistentVolume keeps one claim a rank, which a restarted pod finds warm. Default: EmptyDir.
    """
    size_limit: int | str | None = None
    """
    Size of one pod's cache. Shards beyond it are fetched each time. Default: 100Gi.
    """
    storage_class_name: str | None = None
    """
    Storage class of the claims: best a node-local SSD. Absent means the cluster's default class; "" means a volume without one.
    """
    shared_claim_name: str | None = None
    """
    Runs of the namespace that name the same claim share it: one a rank, <name>-shared-<rank>, which stays when a run is deleted. Absent means the run's own.
    """


class FailurePolicy(SpecPart):
    """
    When a rank fails, the whole group is replaced as the next attempt, from the newest valid checkpoint; an error in the spec or the data ends the run at once.
    """

    max_restarts: int | None = None
    """
    Restarts after program errors (crash, out of memory, hang) before it is Failed. Default: 3.
    """
    max_infra_restarts: int | None = None
    """
    Restarts after infrastructure failures (eviction, preemption, lost node, deleted pod) before it is Failed. Default: 50.
    """
    no_progress_limit: int | None = None
    """
    Program errors in a row at one checkpoint before it is Failed, whatever is left of maxRestarts. Default: 3.
    """
    hang_timeout_seconds: int | None = None
    """
    Seconds without a new step after which the group is replaced as hung; an attempt without a step yet has at least 1800. Default: 1800.
    """
    fatal_exit_codes: list[int] | None = None
    """
    Exit codes that end the run at once as Failed, besides 2, 64 to 74 and 76 to 78, which always do; not where the cluster ended the pod. 75 and 79 to 82 mean that another attempt can go on, and are refused.
    """
    node_loss_seconds: int | None = None
    """
    Seconds a node may be not ready before its pods count as lost and the group is replaced. Default: 60.
    """


class Wandb(SpecPart):
    """
    Log to Weights & Biases. Absent means no.
    """

    project: str
    """
    Its project.
    """
    mode: Literal["Online", "Offline"] | None = None
    """
    Online sends while it trains; Offline keeps the files with TensorBoard's. Default: Online.
    """
    secret_name: str | None = None
    """
    Secret of the namespace with the key api-key; its name begins with lead-wandb-.
    """


class Logging(SpecPart):
    """
    What is logged beside status and pod logs.
    """

    tensorboard: bool | None = None
    """
    Upload TensorBoard event files beside the checkpoints. Default: True.
    """
    wandb: Wandb | None = None
    """
    Log to Weights & Biases. Absent means no.
    """


class Routes(SpecPart):
    """
    Routes to drive. Absent means those of the command.
    """

    prefix: str
    """
    Folder in the profile's bucket, below weights/<namespace>/ or below a folder of weights/ that the profile shares.
    """


class Resources(SpecPart):
    """
    Compute resources of the command, as in a container; GPUs in limits.
    """

    requests: dict[str, int | str] | None = None
    """
    What the scheduler sets aside.
    """
    limits: dict[str, int | str] | None = None
    """
    What it may use at most.
    """


class Regression(SpecPart):
    """
    What is a regression. Absent means nothing.
    """

    metric: Literal["DrivingScore", "RouteCompletion", "Success"] | None = None
    """
    What is compared with the best result so far of the same stage and seed; Success is the share of whole routes without collision and red light. Default: DrivingScore.
    """
    max_drop: int
    """
    Percentage points below the best that are still fine.
    """


class ClosedLoop(SpecPart):
    """
    Drive with new weights in a simulator, in one pod at a time beside training, which nothing that happens to it touches. Absent means no.
    """

    every_epochs: int | None = None
    """
    Drive with the newest checkpoint after every so many epochs and after the last one; 0 means only where the annotation lead.dev/closed-loop asks for it. Default: 1.
    """
    stages: list[str] | None = None
    """
    Stages whose weights are driven. Absent means every stage that trains.
    """
    image: str
    """
    Image of simulator and agent, of the chart's policy.allowedImages. It gets no credentials.
    """
    command: list[str]
    """
    A program and its arguments. Variables LEAD_CLOSED_LOOP_… name weights, routes and the folder for results.
    """
    routes: Routes | None = None
    """
    Routes to drive. Absent means those of the command.
    """
    resources: Resources | None = None
    """
    Compute resources of the command, as in a container; GPUs in limits.
    """
    timeout_seconds: int | None = None
    """
    Seconds after which its pod is ended; image pulls count. Default: 14400.
    """
    regression: Regression | None = None
    """
    What is a regression. Absent means nothing.
    """
    keep: int | None = None
    """
    How many of the newest results of a stage and seed stay, besides the best. Default: 5.
    """


class Scheduling(SpecPart):
    """
    Passed through to the scheduler and to queueing systems.
    """

    scheduler_name: str | None = None
    """
    Absent means the cluster's default.
    """
    priority_class_name: str | None = None
    """
    Absent means the cluster's default.
    """
    queue_name: str | None = None
    """
    Kueue LocalQueue, which admits each attempt as one pod group. Absent means none.
    """


class Resources1(SpecPart):
    """
    Compute resources of each training pod, as in a container; GPUs in limits.
    """

    requests: dict[str, int | str] | None = None
    """
    What the scheduler sets aside.
    """
    limits: dict[str, int | str] | None = None
    """
    What it may use at most.
    """


class Toleration(SpecPart):
    key: str
    """
    Key of the taint.
    """
    operator: Literal["Equal", "Exists"] | None = None
    """
    Equal, the default, compares value; Exists takes any value.
    """
    value: str | None = None
    """
    For operator Equal; empty by default.
    """
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """
    Effect of the taint.
    """
    toleration_seconds: int | None = None
    """
    For NoExecute: how long a pod stays.
    """


class PodOverrides(SpecPart):
    """
    What else may be set on the pods.
    """

    node_selector: dict[str, str] | None = None
    """
    Labels a node must have.
    """
    tolerations: list[Toleration] | None = None
    """
    Taints the pods tolerate, each by its key.
    """
    labels: dict[str, str] | None = None
    """
    Labels added to the pods, of the chart's policy.allowedLabels; none of lead.dev, kubernetes.io and k8s.io, save those of a PodGroup.
    """
    annotations: dict[str, str] | None = None
    """
    Annotations added to the pods, of policy.allowedAnnotations; none of lead.dev, kubernetes.io and k8s.io, save Volcano's scheduling.k8s.io/group-name.
    """


class TrainingRunSpec(SpecPart):
    """
    What to train. Fixed after creation except for suspend, failurePolicy, activeDeadlineSeconds, pendingDeadlineSeconds, ttlSecondsAfterFinished, cleanPodPolicy and closedLoop.
    """

    recipe: str
    """
    Which recipe to train: lead, distill, world, nuplan, or another that the trainer image contains. An unknown name ends the run as Failed.
    """
    preset: str | None = None
    """
    A named set of the recipe's values, such as demo; spec.config and a stage's config win over it. Absent means the recipe's defaults.
    """
    config: dict[str, Any] | None = None
    """
    The recipe's own keys, such as batch_size. They are checked before training: an unknown key or a wrong type ends the run with Accepted=False, which names the key and near matches.
    """
    datasets: list[Dataset]
    """
    The dataset caches to train on. The run waits until all are Ready.
    """
    storage_profile: str | None = None
    """
    Which object store keeps checkpoints and caches: a storage profile of the Helm chart, which holds endpoint and credentials. Default: default.
    """
    nodes: int | None = None
    """
    How many pods train together, each a node of the process group. May change while the run lives: the group commits a checkpoint and goes on with the new number. Default: 1.
    """
    procs_per_node: int | str | None = None
    """
    Training processes in each pod: a number, or Auto for one a GPU of spec.resources.limits (one where there is none). Default: Auto.
    """
    stages: list[Stage] | None = None
    """
    A chain or a tree, run in this order. A finished stage is never trained again.
    """
    parallelism: int | None = None
    """
    How many stages and seeds train side by side, each with spec.nodes pods, as soon as the stages they start from are done. Default: 1.
    """
    checkpoint: Checkpoint | None = None
    """
    When to commit checkpoints, besides each stage's end, and which to keep.
    """
    session_cache: SessionCache | None = None
    """
    Where each pod keeps shards fetched from the object store.
    """
    failure_policy: FailurePolicy | None = None
    """
    When a rank fails, the whole group is replaced as the next attempt, from the newest valid checkpoint; an error in the spec or the data ends the run at once.
    """
    suspend: bool | None = None
    """
    true commits a checkpoint and removes the pods; false continues from it. Neither counts as a restart. Default: False.
    """
    active_deadline_seconds: int | None = None
    """
    Seconds from start (or the last suspension's end) after which the run is Failed. Absent means no limit.
    """
    pending_deadline_seconds: int | None = None
    """
    Seconds a group may wait, over all attempts, for all of its pods to run before the run is Failed. Absent means no limit.
    """
    ttl_seconds_after_finished: int | None = None
    """
    Seconds after its end at which the TrainingRun is deleted; its checkpoints stay. Absent means never.
    """
    clean_pod_policy: Literal["Running", "All", "None"] | None = None
    """
    Which pods go when the run ends, besides those that still run: of the finished ones, with their logs, Running keeps those of the last two attempts, None deletes none, All deletes all. Default: Running.
    """
    grace_period_seconds: int | None = None
    """
    Seconds a pod has to finish its step and commit a checkpoint when asked to stop. Default: 120.
    """
    logging: Logging | None = None
    """
    What is logged beside status and pod logs.
    """
    closed_loop: ClosedLoop | None = None
    """
    Drive with new weights in a simulator, in one pod at a time beside training, which nothing that happens to it touches. Absent means no.
    """
    scheduling: Scheduling | None = None
    """
    Passed through to the scheduler and to queueing systems.
    """
    resources: Resources1 | None = None
    """
    Compute resources of each training pod, as in a container; GPUs in limits.
    """
    pod_overrides: PodOverrides | None = None
    """
    What else may be set on the pods.
    """
