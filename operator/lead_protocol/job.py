"""A pod's job, as a document: built by `lead_operator.objects`, parsed by `lead_trainer` at start.

It travels as a pod annotation that the downward API mounts as `environment.JOB_FILE`. The same model drives
`lead train` without a cluster (the command line builds one), so pods and laptops run one code path.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from lead_protocol.merged_keys import merged_keys
from lead_protocol.object_keys import BuildKeys, ClosedLoopKeys, InstanceKeys
from lead_protocol.strict_model import StrictModel

# The user's recipe keys, already JSON; the recipe's own strict config model judges them.
RecipeConfig = dict[str, Any]


class OwnerIdentity(StrictModel):
    """The custom resource a pod works for."""

    namespace: str
    name: str
    uid: str


class CheckpointPolicy(StrictModel):
    """When to commit checkpoints and which to keep; mirrors `spec.checkpoint` of TrainingRun."""

    every_epochs: int = 1  # 0: after the last epoch alone
    every_steps: int = 0
    keep_last: int = 3
    keep_best: int = 1
    keep_every_epochs: int = 0  # 0: none is kept for its epoch alone
    on_best: bool = False  # also after an epoch that is better than all before
    resume: Literal["Auto", "Never"] = "Auto"


class InitFrom(StrictModel):
    """A beginning: a prefix of checkpoint manifests, resolved to the newest valid one, or to the named one."""

    manifests_prefix: str
    checkpoint_prefix: str = ""  # of one checkpoint, as status.stages[].checkpoint.uri shows it; empty: the newest


class DatasetSource(StrictModel):
    """A complete cache, by content."""

    name: str
    digest: str
    manifest_sha256: str = ""  # of its manifest as it was published; empty without a cluster: any is taken


class LoggingPolicy(StrictModel):
    """What is logged beside progress."""

    tensorboard: bool = True
    wandb_project: str = ""
    wandb_mode: Literal["online", "offline", "disabled"] = "disabled"


class CheckedStage(StrictModel):
    """What a check needs to know of one stage."""

    stage: str
    epochs: int
    config: RecipeConfig = Field(default_factory=dict)  # its own keys, which count before the run's


class CheckJob(StrictModel):
    """The configuration of a run that waits, for its recipe to judge: nothing is read and nothing is written."""

    kind: Literal["check"] = "check"
    owner: OwnerIdentity
    recipe: str
    preset: str = ""
    config: RecipeConfig = Field(default_factory=dict)
    nodes: int
    procs_per_node: int
    stages: list[CheckedStage]

    @property
    def train_jobs(self) -> "list[TrainJob]":
        """One job of each stage, with the keys that its pods get."""
        return [
            TrainJob(
                owner=self.owner,
                stage=stage.stage,
                seed=0,
                attempt=1,
                recipe=self.recipe,
                preset=self.preset,
                config=merged_keys(self.config, stage.config),
                epochs=stage.epochs,
                nodes=self.nodes,
                procs_per_node=self.procs_per_node,
                datasets=[],
            )
            for stage in self.stages
        ]


class TrainJob(StrictModel):
    """One attempt of one stage instance, the same for every rank."""

    kind: Literal["train"] = "train"
    owner: OwnerIdentity
    stage: str
    seed: int
    attempt: int
    recipe: str
    preset: str = ""
    config: RecipeConfig = Field(default_factory=dict)
    epochs: int
    nodes: int
    procs_per_node: int  # 0: as many as the pod has GPUs, at least 1
    datasets: list[DatasetSource]
    checkpoint: CheckpointPolicy = CheckpointPolicy()
    init_from: InitFrom | None = None  # weights alone
    evaluates: bool = False  # measures the weights of `init_from` and commits a report; nothing is trained
    resume_from: InitFrom | None = None  # with optimizer and position, while this instance has no checkpoint of its own
    session_cache_bytes: int = 0  # 0: no limit but the volume's own
    logging: LoggingPolicy = LoggingPolicy()
    grace_period_s: int = 120
    all_stages: CheckJob | None = None  # in the first stage of several: its caches must hold what the others need, too

    @property
    def later_jobs(self) -> "list[TrainJob]":
        """One job of each other stage of the run, with the keys that its pods get; none where this is not the first."""
        jobs = self.all_stages.train_jobs if self.all_stages else []
        return [job for job in jobs if job.stage != self.stage]

    @property
    def keys(self) -> InstanceKeys:
        """Object keys of this stage instance."""
        return InstanceKeys(self.owner.namespace, self.owner.uid, self.stage, self.seed)


class StoreSource(StrictModel):
    """A raw dataset tree below the storage profile's prefix."""

    kind: Literal["store"] = "store"
    prefix: str


class FolderSource(StrictModel):
    """A raw dataset tree on a mounted volume."""

    kind: Literal["folder"] = "folder"
    path: str


class BuildJob(StrictModel):
    """One pod's share of building one cache: shards k with k % parallelism == index, or of one stage, samples k."""

    kind: Literal["build"] = "build"
    owner: OwnerIdentity
    generation: int
    attempt: int
    index: int
    parallelism: int
    recipe: str
    source: Annotated[StoreSource | FolderSource, Field(discriminator="kind")]
    collections: list[str]
    config: RecipeConfig = Field(default_factory=dict)
    expect_digest: str = ""
    stage: str = ""  # that this pod does; empty: the rest of the work, up to the manifest
    stages: list[str] = Field(default_factory=list)  # all that the build has; the recipe judges their names
    made: list[str] = Field(default_factory=list)  # those of them that were complete before this pod began

    @property
    def keys(self) -> BuildKeys:
        """Object keys of this build."""
        return BuildKeys(self.owner.namespace, self.owner.uid)

    @property
    def progress_key(self) -> str:
        """Key of this pod's progress record."""
        return self.keys.progress(self.generation, self.index, self.stage)


class ClosedLoopJob(StrictModel):
    """One attempt to drive with the weights of one checkpoint, the same for both containers of the trainer image."""

    kind: Literal["closed-loop"] = "closed-loop"
    owner: OwnerIdentity
    stage: str
    seed: int
    attempt: int  # counted over the run
    epoch: int
    step: int
    checkpoint_prefix: str  # of its data objects
    routes_prefix: str = ""  # below the storage profile's prefix; empty: the command's own routes
    request: str = ""  # value of the annotation that asked for it; empty: it was due

    @property
    def instance(self) -> InstanceKeys:
        """Object keys of the stage instance whose weights are driven."""
        return InstanceKeys(self.owner.namespace, self.owner.uid, self.stage, self.seed)

    @property
    def keys(self) -> ClosedLoopKeys:
        """Object keys of the results."""
        return ClosedLoopKeys(self.owner.namespace, self.owner.uid, self.stage, self.seed)


AnyJob = TrainJob | BuildJob | CheckJob | ClosedLoopJob
Job = Annotated[AnyJob, Field(discriminator="kind")]
_JOB: TypeAdapter[AnyJob] = TypeAdapter(Job)


def parse_job(text: str | bytes) -> AnyJob:
    """Parses the mounted job file; raises pydantic.ValidationError naming each wrong key."""
    return _JOB.validate_json(text)
