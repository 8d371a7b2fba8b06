"""A TrainingRun as the rest of the operator reads it: body in, frozen dataclass out.

Its only defaults are those of fields inside lists (`body`): the API server, or `crd_defaults` where there is
none, has filled in the others.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from lead_operator import names
from lead_operator.errors import SpecError
from lead_operator.resources.body import STAGE_DEFAULTS, Identity, Reader, parse_identity, parse_quantity
from lead_operator.resources.closed_loop import ClosedLoop, parse_closed_loop
from lead_operator.resources.pod_settings import ComputeResources, PodSettings, parse_resources, parse_tolerations
from lead_operator.resources.recipe_config import require_config
from lead_protocol.merged_keys import merged_keys

EVALUATION = "Evaluation"  # kind of a stage

MAX_REQUEST = 64  # characters of the annotation that asks to drive once


@dataclass(frozen=True)
class Stage:
    """One stage of the chain or tree."""

    name: str
    epochs: int
    seeds: tuple[int, ...]
    config: dict[str, Any]
    init_from: str | None  # name of an earlier stage
    init_uri: str = ""  # of a checkpoint; at most one of the two is set
    evaluates: bool = False  # the weights it begins with, instead of training them


@dataclass(frozen=True)
class StageInstance:
    """One stage with one seed: what a group of pods trains."""

    stage: Stage
    seed: int

    @property
    def text(self) -> str:
        """For people; the seed only where the stage has several."""
        return self.stage.name if len(self.stage.seeds) == 1 else f"{self.stage.name} s{self.seed}"


@dataclass(frozen=True)
class Checkpointing:
    """When to commit checkpoints and which to keep."""

    every_epochs: int
    every_steps: int
    keep_last: int
    keep_best: int
    keep_every_epochs: int  # 0: none is kept for its epoch alone
    on_best: bool  # commit also after the best epoch so far
    resume: str  # Auto | Never
    origin: str  # URI of a checkpoint that the first stage goes on from; empty: none


@dataclass(frozen=True)
class SessionCache:
    """Where pods keep fetched shards."""

    medium: str  # EmptyDir | PersistentVolume
    size_limit: str
    size_bytes: int
    storage_class: str | None  # None: the cluster's default; empty: volumes without a class
    shared_claim: str  # name of the claims that several runs share; empty: the run has its own


@dataclass(frozen=True)
class FailurePolicy:
    """Budgets and deadlines."""

    max_restarts: int
    max_infra_restarts: int
    no_progress_limit: int
    hang_timeout_s: int
    fatal_exit_codes: tuple[int, ...]  # besides those that always end a run
    node_loss_s: int


@dataclass(frozen=True)
class Wandb:
    """Logging to Weights & Biases."""

    project: str
    mode: str  # Online | Offline
    secret_name: str


@dataclass(frozen=True)
class Scheduling:
    """What is passed through to schedulers and queues; empty means not set."""

    scheduler: str
    priority_class: str
    queue: str


@dataclass(frozen=True)
class TrainingRun:
    """What one TrainingRun asks for."""

    identity: Identity
    recipe: str
    preset: str
    config: dict[str, Any]
    datasets: tuple[str, ...]  # names of DatasetCaches in the same namespace
    storage_profile: str
    nodes: int
    procs_per_node: int
    stages: tuple[Stage, ...]
    parallelism: int  # stage instances at once
    checkpoint: Checkpointing
    session_cache: SessionCache
    failure_policy: FailurePolicy
    suspend: bool
    active_deadline_s: int | None
    pending_deadline_s: int | None
    ttl_after_finished_s: int | None
    clean_pod_policy: str  # Running | All | None
    grace_period_s: int
    tensorboard: bool
    wandb: Wandb | None
    scheduling: Scheduling
    resources: ComputeResources
    pod_settings: PodSettings
    closed_loop: ClosedLoop | None = None
    drive_request: str = ""  # value of the annotation that asks to drive once; empty: none

    @property
    def instances(self) -> tuple[StageInstance, ...]:
        """All stage instances in the order in which they are trained."""
        return tuple(StageInstance(stage, seed) for stage in self.stages for seed in stage.seeds)

    def keys_of(self, stage: Stage) -> dict[str, Any]:
        """The keys that differ in a stage; an evaluation has those of the stage that it measures, and its own win.

        Raises ConfigOmitted where they are not kept in memory.
        """
        measured = [each for each in self.stages if stage.evaluates and each.name == stage.init_from]
        return merged_keys(*(require_config(each.config) for each in (*measured, stage)))

    def parent_of(self, instance: StageInstance) -> StageInstance | None:
        """The instance whose weights this one starts from: the same seed where the parent has it, else its first."""
        if instance.stage.init_from is None:
            return None
        for stage in self.stages:
            if stage.name == instance.stage.init_from:
                return StageInstance(stage, instance.seed if instance.seed in stage.seeds else stage.seeds[0])
        raise SpecError(
            f"{self.identity}: stage {instance.stage.name!r} starts from {instance.stage.init_from!r}, "
            "which is no stage of this run; correct initFrom.stage"
        )


def parse_training_run(body: dict[str, Any]) -> TrainingRun:
    """Reads a TrainingRun body; raises SpecError naming the field that is missing or of the wrong type."""
    identity = parse_identity(body, names.TRAINING_RUN_KIND)
    spec = Reader(body.get("spec"), owner=str(identity), path="spec")
    resources = parse_resources(spec.child("resources"))
    stages = tuple(_stages(spec.children("stages", STAGE_DEFAULTS)))
    return TrainingRun(
        identity=identity,
        recipe=spec.get("recipe", str),
        preset=spec.text("preset"),
        config=spec.get("config", dict),
        datasets=tuple(d.child("cacheRef").get("name", str) for d in spec.children("datasets")),
        storage_profile=spec.get("storageProfile", str),
        nodes=spec.get("nodes", int),
        procs_per_node=_procs_per_node(spec, resources),
        stages=stages,
        parallelism=spec.get("parallelism", int),
        checkpoint=_checkpoint(spec.child("checkpoint")),
        session_cache=_session_cache(spec.child("sessionCache")),
        failure_policy=_failure_policy(spec.child("failurePolicy")),
        suspend=spec.get("suspend", bool),
        active_deadline_s=spec.optional("activeDeadlineSeconds", int),
        pending_deadline_s=spec.optional("pendingDeadlineSeconds", int),
        ttl_after_finished_s=spec.optional("ttlSecondsAfterFinished", int),
        clean_pod_policy=spec.get("cleanPodPolicy", str),
        grace_period_s=spec.get("gracePeriodSeconds", int),
        tensorboard=spec.child("logging").get("tensorboard", bool),
        wandb=_wandb(spec.child("logging")),
        scheduling=_scheduling(spec.child("scheduling")),
        resources=resources,
        pod_settings=_pod_settings(spec.child("podOverrides")),
        closed_loop=parse_closed_loop(spec, {stage.name: stage.evaluates for stage in stages}),
        drive_request=parse_request(body),
    )


def parse_request(body: dict[str, Any]) -> str:
    """Returns the value of the annotation that asks to drive once, as a status holds it; empty where there is none."""
    annotations = (body.get("metadata") or {}).get("annotations") or {}
    text = str(annotations.get(names.Annotation.CLOSED_LOOP, ""))
    return "".join(filter(str.isprintable, text))[:MAX_REQUEST]


def refuse_lost_config(run: TrainingRun) -> None:
    """Raises SpecError where a stage's mapping meets what is none in spec.config: half of the values would be lost.

    Mappings in both are merged key by key. Asked before a run begins, not after days at the stage in question.
    """
    for stage in run.stages:
        for key, value in require_config(stage.config).items():
            general = require_config(run.config).get(key)
            if value is None or general is None or isinstance(value, dict) == isinstance(general, dict):
                continue
            raise SpecError(
                f"{run.identity}: config.{key} is {value!r} in stage {stage.name!r} and {general!r} in spec.config, "
                "expected mappings in both, which are merged, or in none; write it in the stages alone"
            )


def _procs_per_node(spec: Reader, resources: ComputeResources) -> int:
    value = spec.get("procsPerNode", object)
    if value == "Auto":
        return max(1, resources.gpus)
    return spec.get("procsPerNode", int)


def _stages(readers: Iterable[Reader]) -> Iterator[Stage]:
    """Yields the stages; an evaluation has the epochs and the seeds of the stage that it measures."""
    known: dict[str | None, Stage] = {}
    for reader in readers:
        stage = _stage(reader)
        measured = known.get(stage.init_from)
        if stage.evaluates and measured is not None:
            stage = replace(stage, epochs=measured.epochs, seeds=measured.seeds)
        known[stage.name] = stage
        yield stage


def _stage(reader: Reader) -> Stage:
    init_from = reader.child("initFrom") if reader.optional("initFrom", dict) is not None else None
    return Stage(
        name=reader.get("name", str),
        epochs=reader.get("epochs", int),
        seeds=tuple(reader.get("seeds", list)),
        config=reader.get("config", dict),
        init_from=init_from.optional("stage", str) if init_from else None,
        init_uri=init_from.text("uri") if init_from else "",
        evaluates=reader.get("kind", str) == EVALUATION,
    )


def _checkpoint(reader: Reader) -> Checkpointing:
    return Checkpointing(
        every_epochs=reader.get("everyEpochs", int),
        every_steps=reader.get("everySteps", int),
        keep_last=reader.get("keepLast", int),
        keep_best=reader.get("keepBest", int),
        keep_every_epochs=reader.get("keepEveryEpochs", int),
        on_best=reader.get("onBest", bool),
        resume=reader.get("resume", str),
        origin=reader.text("from"),
    )


def _session_cache(reader: Reader) -> SessionCache:
    size = str(reader.get("sizeLimit", object))
    return SessionCache(
        medium=reader.get("medium", str),
        size_limit=size,
        size_bytes=int(parse_quantity(size)),
        storage_class=reader.optional("storageClassName", str),
        shared_claim=reader.text("sharedClaimName"),
    )


def _failure_policy(reader: Reader) -> FailurePolicy:
    return FailurePolicy(
        max_restarts=reader.get("maxRestarts", int),
        max_infra_restarts=reader.get("maxInfraRestarts", int),
        no_progress_limit=reader.get("noProgressLimit", int),
        hang_timeout_s=reader.get("hangTimeoutSeconds", int),
        fatal_exit_codes=tuple(reader.optional("fatalExitCodes", list) or ()),
        node_loss_s=reader.get("nodeLossSeconds", int),
    )


def _wandb(logging: Reader) -> Wandb | None:
    if logging.optional("wandb", dict) is None:
        return None
    reader = logging.child("wandb")
    return Wandb(
        project=reader.get("project", str), mode=reader.get("mode", str), secret_name=reader.text("secretName")
    )


def _scheduling(reader: Reader) -> Scheduling:
    return Scheduling(
        scheduler=reader.text("schedulerName"),
        priority_class=reader.text("priorityClassName"),
        queue=reader.text("queueName"),
    )


def _pod_settings(reader: Reader) -> PodSettings:
    return PodSettings(
        node_selector=reader.texts("nodeSelector"),
        tolerations=parse_tolerations(reader),
        labels=reader.texts("labels"),
        annotations=reader.texts("annotations"),
    )
