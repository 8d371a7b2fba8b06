"""Spec of a TrainingRun: generated from crds/trainingrun.yaml by `python -m lead_testing.client_models`; do not edit."""
# One class a mapping of the schema.

from __future__ import annotations

from typing import Any, Literal

from lead_client.objects.parts import SpecPart


class CacheRef(SpecPart):
    """
    A DatasetCache in the same namespace, built for the same recipe. The digest it holds when the run starts is kept until the run ends, also if the cache is rebuilt meanwhile.
    """

    name: str
    """
    Name of the DatasetCache.
    """


class Dataset(SpecPart):
    cache_ref: CacheRef
    """
    A DatasetCache in the same namespace, built for the same recipe. The digest it holds when the run starts is kept until the run ends, also if the cache is rebuilt meanwhile.
    """


class InitFrom(SpecPart):
    """
    Start from the weights of another checkpoint (not its optimizer): stage or uri. Absent means the recipe's own initialisation.
    """

    stage: str | None = None
    """
    Name of the earlier stage. Its instance of the same seed is taken; where it has no such seed, its first one.
    """
    uri: str | None = None
    """
    A checkpoint of a run in this namespace, as its status.stages[].checkpoint.uri shows it. Without its folder checkpoints/… the newest valid one of that stage is taken.
    """


class Stage(SpecPart):
    kind: Literal["Train", "Evaluation"] | None = None
    """
    Train (the default), or Evaluation: the weights that initFrom names are validated as in training, and a report is committed in place of a checkpoint. It has the config of the stage that it measures.
    """
    name: str
    """
    Name of the stage, such as pretrain. It is part of pod names and object keys.
    """
    epochs: int | None = None
    """
    How many epochs to train; 31 by default.
    """
    init_from: InitFrom | None = None
    """
    Start from the weights of another checkpoint (not its optimizer): stage or uri. Absent means the recipe's own initialisation.
    """
    seeds: list[int] | None = None
    """
    Train this stage once for each seed, by default [0]. Status shows mean and standard deviation over the seeds.
    """
    config: dict[str, Any] | None = None
    """
    Keys of the recipe that differ in this stage; they win over spec.config, mappings key by key. None by default.
    """


class Checkpoint(SpecPart):
    """
    When to commit checkpoints and which to keep. The end of a stage is always committed.
    """

    every_epochs: int | None = None
    """
    Commit a checkpoint every N epochs; 0 turns this off. Default: 1.
    """
    every_steps: int | None = None
    """
    Commit a checkpoint every N optimizer steps; 0 turns this off. Default: 0.
    """
    keep_last: int | None = None
    """
    How many of the newest checkpoints to keep; at least 2, so that a corrupt one has a predecessor. Default: 3.
    """
    keep_best: int | None = None
    """
    How many of the best checkpoints to keep in addition, by the recipe's own metric. Default: 1.
    """
    keep_every_epochs: int | None = None
    """
    Keep one checkpoint for good every N epochs; 0 keeps none. Default: 0.
    """
    on_best: bool | None = None
    """
    Commit also after an epoch that is better than all earlier ones, by the recipe's own metric. Default: False.
    """
    resume: Literal["Auto", "Never"] | None = None
    """
    Auto continues from the newest valid checkpoint of this run after a restart. Never starts the stage from step 0 after every restart. Default: Auto.
    """
    from_: str | None = None
    """
    Continue from a checkpoint of another run in this namespace (written as in initFrom.uri), with its optimizer and position, if the first stage has no checkpoint of its own. Recipe, config and datasets must be equal; epochs may be higher. Absent means from the start.
    """


class SessionCache(SpecPart):
    """
    Where each pod keeps the shards it has fetched from the object store.
    """

    medium: Literal["EmptyDir", "PersistentVolume"] | None = None
    """
    EmptyDir lies on the node's disk and ends with the pod. PersistentVolume keeps one claim a rank, which a restarted pod finds warm. Default: EmptyDir.
    """
    size_limit: int | str | None = None
    """
    Size of the cache of one pod. Shards beyond it are read from the store each time. Default: 100Gi.
    """
    storage_class_name: str | None = None
    """
    Storage class of the claims, as in a PersistentVolumeClaim: best a node-local SSD. Absent means the cluster's default class; "" means a volume without a class.
    """
    shared_claim_name: str | None = None
    """
    Runs of the namespace that name the same claim share it: one claim a rank, <name>-shared-<rank>, which stays when a run is deleted. Absent means claims of the run's own.
    """


class FailurePolicy(SpecPart):
    """
    What to do when a rank fails. The whole group is always replaced as the next attempt, from the newest valid checkpoint; an error in the spec or the data ends the run at once.
    """

    max_restarts: int | None = None
    """
    Restarts after program errors (crash, out of memory, hang) before the run is Failed. Default: 3.
    """
    max_infra_restarts: int | None = None
    """
    Restarts after infrastructure failures (eviction, preemption, lost node, deleted pod) before the run is Failed. Default: 50.
    """
    no_progress_limit: int | None = None
    """
    Program errors in a row at one and the same checkpoint before the run is Failed, whatever is left of maxRestarts. Default: 3.
    """
    hang_timeout_seconds: int | None = None
    """
    Seconds without a new step after which the group counts as hung and is replaced; an attempt that has made no step yet has at least 1800. Default: 1800.
    """
    fatal_exit_codes: list[int] | None = None
    """
    Exit codes that end the run at once as Failed, besides 2, 64 to 74 and 76 to 78, which always do. What the cluster ended (eviction, deletion, lost node) is not judged by them. 75 and 79 to 82 mean that another attempt can go on; they are refused.
    """
    node_loss_seconds: int | None = None
    """
    Seconds a node may be not ready before its pods count as lost and the group is replaced elsewhere. Default: 60.
    """


class Wandb(SpecPart):
    """
    Log to Weights & Biases as well. Absent means no.
    """

    project: str
    """
    Project that the run appears in.
    """
    mode: Literal["Online", "Offline"] | None = None
    """
    Online sends while it trains; Offline keeps the files with the TensorBoard files. Default: Online.
    """
    secret_name: str | None = None
    """
    Secret in the same namespace with the key api-key. Its name begins with lead-wandb-.
    """


class Logging(SpecPart):
    """
    What is logged beside status and the pod logs.
    """

    tensorboard: bool | None = None
    """
    Write TensorBoard event files and upload them beside the checkpoints. Default: True.
    """
    wandb: Wandb | None = None
    """
    Log to Weights & Biases as well. Absent means no.
    """


class Routes(SpecPart):
    """
    Routes to drive. Absent means those of the command.
    """

    prefix: str
    """
    Folder in the bucket of the storage profile that pods of the run may read, below weights/<namespace>/ or in a folder below weights/ that the profile shares.
    """


class Resources(SpecPart):
    """
    Compute resources of the command, as in a container. Ask for GPUs in limits.
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
    What counts as a regression. Absent means nothing does.
    """

    metric: Literal["DrivingScore", "RouteCompletion", "Success"] | None = None
    """
    What is compared with the best result of the same stage and seed before; Success is the share of whole routes without collision and red light. Default: DrivingScore.
    """
    max_drop: int
    """
    How many percentage points below the best are still fine.
    """


class ClosedLoop(SpecPart):
    """
    Drive with new weights in a simulator, in one pod beside training, never more than one at a time. Nothing that happens to it touches training. It may be changed while the run lives. Absent means no.
    """

    every_epochs: int | None = None
    """
    Drive after every so many epochs, and after the last one, with the newest checkpoint; 0 means only where the annotation lead.dev/closed-loop asks for it. Default: 1.
    """
    image: str
    """
    Image of the simulator and the agent, of those that the chart's policy.allowedImages holds. It gets no credentials.
    """
    command: list[str]
    """
    What drives: a program and its arguments. Environment variables LEAD_CLOSED_LOOP_… name the weights, the routes and the folder for its results.
    """
    routes: Routes | None = None
    """
    Routes to drive. Absent means those of the command.
    """
    resources: Resources | None = None
    """
    Compute resources of the command, as in a container. Ask for GPUs in limits.
    """
    timeout_seconds: int | None = None
    """
    Seconds after which a pod that drives is ended; its image pulls count. Default: 14400.
    """
    regression: Regression | None = None
    """
    What counts as a regression. Absent means nothing does.
    """
    keep: int | None = None
    """
    How many of the newest results of a stage and seed stay, besides the best one. Default: 5.
    """


class Scheduling(SpecPart):
    """
    Passed through to the scheduler and to queueing systems; nothing is scheduled here.
    """

    scheduler_name: str | None = None
    """
    Scheduler of the pods. Absent means the cluster's default.
    """
    priority_class_name: str | None = None
    """
    PriorityClass of the pods. Absent means the cluster's default.
    """
    queue_name: str | None = None
    """
    Kueue LocalQueue that admits each attempt as one pod group. Absent means no queue.
    """


class Resources1(SpecPart):
    """
    Compute resources of each training pod, as in a container. Ask for GPUs in limits.
    """

    requests: dict[str, int | str] | None = None
    """
    What the scheduler sets aside for each pod.
    """
    limits: dict[str, int | str] | None = None
    """
    What each pod may use at most.
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
    Value of the taint, for operator Equal; empty by default.
    """
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """
    Effect of the taint.
    """
    toleration_seconds: int | None = None
    """
    For effect NoExecute, how long a pod stays on the tainted node.
    """


class PodOverrides(SpecPart):
    """
    What else may be set on the pods. A closed list; there is no pod template.
    """

    node_selector: dict[str, str] | None = None
    """
    Labels a node must have.
    """
    tolerations: list[Toleration] | None = None
    """
    Taints the pods tolerate. Each names its key; a toleration of everything is refused.
    """
    labels: dict[str, str] | None = None
    """
    Labels added to the pods, of those that the chart's policy.allowedLabels holds. Keys of lead.dev, kubernetes.io and k8s.io are refused, save those of a PodGroup.
    """
    annotations: dict[str, str] | None = None
    """
    Annotations added to the pods, of policy.allowedAnnotations. Keys of lead.dev, kubernetes.io and k8s.io are refused, save Volcano's scheduling.k8s.io/group-name.
    """


class TrainingRunSpec(SpecPart):
    """
    What to train. Fixed after creation except for suspend, failurePolicy, activeDeadlineSeconds, pendingDeadlineSeconds, ttlSecondsAfterFinished, cleanPodPolicy and closedLoop.
    """

    recipe: str
    """
    Which recipe to train: lead, distill, world, nuplan, or another that the trainer image contains. A name the image does not know ends the run as Failed.
    """
    preset: str | None = None
    """
    A named set of configuration values of the recipe, such as demo. Absent means the recipe's defaults. Values in spec.config and in a stage's config win over it.
    """
    config: dict[str, Any] | None = None
    """
    The recipe's own keys, such as batch_size or lr. They are checked before training starts: an unknown key or a wrong type ends the run with condition Accepted=False, which names the key and near matches.
    """
    datasets: list[Dataset]
    """
    The dataset caches to train on. The run waits until all of them are Ready.
    """
    storage_profile: str | None = None
    """
    Which object store keeps checkpoints and caches: the name of a storage profile that the administrator defined in the Helm chart. Endpoints and credentials never stand in a TrainingRun. Default: default.
    """
    nodes: int | None = None
    """
    How many pods train together. Each is one node of the process group. Default: 1.
    """
    procs_per_node: int | str | None = None
    """
    Training processes in each pod: a number, or Auto for one process a GPU of spec.resources.limits (one process where there is none). Default: Auto.
    """
    stages: list[Stage] | None = None
    """
    The stages, a chain or a tree, run in this order; a stage with several seeds is trained once for each seed. A finished stage is never trained again.
    """
    parallelism: int | None = None
    """
    How many stages and seeds train side by side, each with its own spec.nodes pods, as soon as the stages they start from are done. 1 trains one after another. Default: 1.
    """
    checkpoint: Checkpoint | None = None
    """
    When to commit checkpoints and which to keep. The end of a stage is always committed.
    """
    session_cache: SessionCache | None = None
    """
    Where each pod keeps the shards it has fetched from the object store.
    """
    failure_policy: FailurePolicy | None = None
    """
    What to do when a rank fails. The whole group is always replaced as the next attempt, from the newest valid checkpoint; an error in the spec or the data ends the run at once.
    """
    suspend: bool | None = None
    """
    true commits a checkpoint and removes the pods; false continues from it. Neither counts as a restart. Default: False.
    """
    active_deadline_seconds: int | None = None
    """
    Seconds from start (or from the end of the last suspension) after which the run is stopped as Failed. Absent means no limit.
    """
    pending_deadline_seconds: int | None = None
    """
    Seconds a group may wait, over all attempts, for all of its pods to run; then the run is Failed and releases what it holds. Absent means no limit.
    """
    ttl_seconds_after_finished: int | None = None
    """
    Seconds after its end at which the finished TrainingRun is deleted; its checkpoints stay in the object store. Absent means never.
    """
    clean_pod_policy: Literal["Running", "All", "None"] | None = None
    """
    Which pods are deleted when the run ends. Pods that still run are always deleted. Of the finished ones and their logs, Running keeps those of the last two attempts, None deletes none, All deletes all. Default: Running.
    """
    grace_period_seconds: int | None = None
    """
    Seconds a pod has to finish its step and commit a checkpoint after it is asked to stop. Default: 120.
    """
    logging: Logging | None = None
    """
    What is logged beside status and the pod logs.
    """
    closed_loop: ClosedLoop | None = None
    """
    Drive with new weights in a simulator, in one pod beside training, never more than one at a time. Nothing that happens to it touches training. It may be changed while the run lives. Absent means no.
    """
    scheduling: Scheduling | None = None
    """
    Passed through to the scheduler and to queueing systems; nothing is scheduled here.
    """
    resources: Resources1 | None = None
    """
    Compute resources of each training pod, as in a container. Ask for GPUs in limits.
    """
    pod_overrides: PodOverrides | None = None
    """
    What else may be set on the pods. A closed list; there is no pod template.
    """
