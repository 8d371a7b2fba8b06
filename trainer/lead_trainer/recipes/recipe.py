"""What a training system must say about itself; everything else is written once, in `engine`, `data` and `loop`.

A recipe is config + preparation + dataset + model + step + checkpoint names. It is one object behind an entry point of
the group `lead.recipes`, so a package of somebody else's adds a recipe without a change here. What every recipe must
have is in `Recipe`; what some have more is in the small protocols after it (Validates, MixesCaches, NamesFiles,
PartsRuns, Inherits, PartsKeys, Advises): the engine asks for each and does without.
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from lead_trainer.errors import NoSuchRecipe

if TYPE_CHECKING:
    import torch  # commands that read a config or prepare data must not wait for it

ConfigT = TypeVar("ConfigT", bound=BaseModel)
Sample = dict[str, Any]  # numpy arrays and scalars by key
Batch = dict[str, Any]  # torch tensors by key, first axis the batch; lists for strings


@dataclass(frozen=True)
class SourceFile:
    """One file of a raw dataset tree; `path` is relative to the tree's root, with forward slashes."""

    path: str
    size: int
    etag: str


class SourceTree(Protocol):
    """A raw dataset tree, in a bucket or in a folder."""

    def files(self) -> Sequence[SourceFile]:
        """Returns every file, sorted by path; the listing is taken once and kept."""

    def read(self, path: str) -> bytes:
        """Returns one file's bytes; raises BadData naming the file when it is missing or cannot be read whole."""


@dataclass(frozen=True)
class SampleKey:
    """One frame of one route; `route` is the route folder relative to the tree's root."""

    route: str
    frame: int


@dataclass(frozen=True)
class RouteVerdict:
    """Whether a route is used for training, and why not."""

    route: str
    kept: bool
    reason: str  # a code, `kept` for a kept one
    frames: int


@dataclass(frozen=True)
class Bucket:
    """Samples that are drawn together; `samples` are positions in Scan.samples."""

    name: str
    samples: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Collection:
    """Buckets and how many times each is drawn in an epoch (LEAD's mixture factors)."""

    name: str
    buckets: tuple[Bucket, ...]
    mixture: tuple[float, ...]  # a factor a bucket; 1.0 draws each sample once
    counters: Mapping[str, int] = field(default_factory=dict)  # kept beside the rows, for people


@dataclass(frozen=True)
class Scan:
    """What a raw tree holds: the verdicts, every sample of any collection, the collections."""

    verdicts: tuple[RouteVerdict, ...]
    samples: tuple[SampleKey, ...]  # sorted, unique
    collections: tuple[Collection, ...]
    estimated_bytes: npt.NDArray[np.int64]  # a sample, from the listing alone: decides how shards are cut


class Preparation(Protocol):
    """How raw files become cache records; pure in (tree, config), with a version that enters the cache's digest.

    `config` in `scan`, `record` and `route_metas` is what `config_keys` returned and nothing else, so that no value can
    be read that did not enter the digest.
    """

    version: str
    default_collections: tuple[str, ...]  # what a cache holds that names none: everything a usual run trains on

    def scan(self, tree: SourceTree, config: Mapping[str, Any], collections: Sequence[str]) -> Scan:
        """Reads verdicts and listings, applies the route filter, fills the named collections."""

    def record(self, tree: SourceTree, config: Mapping[str, Any], sample: SampleKey) -> Mapping[str, bytes]:
        """Returns the cache record of one sample (every view), as named fields."""

    def route_metas(self, tree: SourceTree, config: Mapping[str, Any], route: str, frames: Sequence[int]) -> Any:
        """Returns the columnar metas of one route as a pyarrow.Table, one row a frame."""

    def config_keys(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns every config value the preparation reads, defaults filled in: they enter the digest."""


@runtime_checkable
class ChoosesCollections(Protocol):
    """A preparation whose usual collections depend on the config."""

    def collections_for(self, config: Mapping[str, Any]) -> Sequence[str]:
        """Returns what a cache with this config (as the user wrote it) holds if it names no collection."""


@runtime_checkable
class NamesCollections(Protocol):
    """A preparation that knows the names of its collections without data."""

    @property
    def all_collections(self) -> Sequence[str]:
        """Every collection that a cache may hold, whatever its config."""


@runtime_checkable
class ReadsPart(Protocol):
    """A preparation that reads some of a folder's files, so that others beside them may come and go."""

    def reads(self, config: Mapping[str, Any]) -> Sequence[str]:
        """Returns how the paths begin that it reads with this config (what `config_keys` returned)."""


@runtime_checkable
class StaysInProcess(Protocol):
    """A preparation that may hold what must not be there once a process, such as a model on a GPU."""

    def stays_in_process(self, config: Mapping[str, Any]) -> bool:
        """Returns whether records of this config (what `config_keys` returned) are made by threads alone."""


@runtime_checkable
class CountsRecords(Protocol):
    """A preparation that states facts of a cache as a whole, such as the spread of its labels, in the manifest.

    Each record is counted once, when it is made; runs read the facts and never go through the records for them.
    """

    def counts(
        self, config: Mapping[str, Any], sample: SampleKey, record: Mapping[str, memoryview]
    ) -> Mapping[str, npt.NDArray[np.int64]]:
        """Returns counts of one record by name, of one length a name; they are added up over all samples."""

    def facts(
        self, config: Mapping[str, Any], counts: Mapping[str, npt.NDArray[np.int64]]
    ) -> Mapping[str, Sequence[float]]:
        """Returns the facts that follow from the counts of all samples."""


class SampleSource(Protocol):
    """The samples of one collection of one cache, decoded and augmented."""

    def __len__(self) -> int:
        """Number of samples an epoch may draw from."""

    def epoch_draw(self, epoch: int) -> npt.NDArray[np.int64]:
        """Returns the unshuffled sample indices of one epoch, with the buckets' mixture factors applied."""

    def load(self, index: int, epoch: int) -> Sample:
        """Returns one sample; a pure function of (index, epoch, config.seed) and the cache. Thread-safe."""


@dataclass(frozen=True)
class StepOutput:
    """What a recipe's step gives the loop; every tensor is a scalar."""

    loss: "torch.Tensor"
    parts: Mapping[str, "torch.Tensor"] = field(default_factory=dict)  # unscaled losses by their tag
    metrics: Mapping[str, "torch.Tensor"] = field(default_factory=dict)
    outputs: Any = None  # kept only for pictures
    scaled: Mapping[str, "torch.Tensor"] = field(default_factory=dict)  # what `loss` sums, by the tags of `parts`


@dataclass(frozen=True)
class Evaluation:
    """What one validation batch adds to each metric: its sum over items, and the number of these items.

    The engine adds both over batches and ranks and divides once, so a mean is exact for any number of processes and any
    size of the last batch. Ratios fit too: intersections and unions of a class, for example.
    """

    totals: Mapping[str, "tuple[torch.Tensor, torch.Tensor | int]"]  # (scalar sum, count) by tag; has `loss`
    largest: Mapping[str, "torch.Tensor"] = field(default_factory=dict)  # scalars; the greatest of all batches is told


@dataclass(frozen=True)
class LossScale:
    """How fp16's loss scale begins and moves; the defaults are LEAD's (lead/training/train.py)."""

    initial: float = 1024.0
    growth: float = 2.0
    backoff: float = 0.5
    growth_interval: int = 256  # steps
    largest: float = 65536.0


@dataclass(frozen=True)
class StageShape:
    """What the loop must know of a config, whatever the recipe calls it."""

    seed: int
    batch_size: int  # global: of all ranks together
    collection: str  # the bucket collection this stage trains on
    precision: str  # auto | fp32 | bf16 | fp16
    deterministic: bool
    sync_batchnorm: bool
    compile: bool
    grad_clip_norm: float  # 0: off
    scalars_every_steps: int
    pictures_every_steps: int  # 0: off
    loader_threads: int
    batches_ahead: int = 2  # made while a step runs
    canonical_nodes: int = 1  # to which an epoch's shards are dealt: a divisor of batch_size
    session_cache: bool = True  # keep shards on the local disk
    session_cache_backend: str = "packed"  # packed: whole shards | diskcache: single records
    loader: str = "ring"  # ring: threads | process: torch's DataLoader, for decoding that holds the GIL
    loss_scale: LossScale = LossScale()

    # --- the step
    accumulate_steps: int = 1  # batches an optimizer step; what is left at an epoch's end makes a smaller step
    grad_clip_quantile: float = 0.0  # clips to this quantile of the last gradient norms, for example 0.99; 0: off
    grad_clip_history: int = 1000  # norms that quantile is taken of
    ema_decay: float = 0.0  # of an exponential moving average of the weights; 0: none
    freeze_batchnorm: bool = False  # batch norms keep and use their statistics
    gradient_checkpointing: bool = False  # the model must have `enable_gradient_checkpointing()`
    split_when_out_of_memory: bool = False  # the same batch in smaller parts instead of an end

    # --- validation, by a recipe that `Validates`
    validate_every_epochs: int = 1  # 0: never by epochs
    validate_every_steps: int = 0  # 0: never by steps
    best_metric: str = ""  # a mean of the epoch, or `val/<tag>`; empty: val/loss, or loss where nothing validates
    best_is_greatest: bool = False
    patience_epochs: int = 0  # epochs without a better best_metric after which the stage ends; 0: never

    # --- small runs
    overfit_samples: int = 0  # trains and validates on these first samples alone; 0: off
    max_samples: int = 0  # of an epoch's draw; 0: all
    max_validation_samples: int = 0  # 0: all

    # --- telling
    console_every_steps: int = 0  # 0: at epochs' ends only
    histograms_every_steps: int = 0  # of weights and gradients, in the event file; 0: off


@dataclass(frozen=True)
class WatchRule:
    """One thing worth telling a person who watches a run."""

    name: str  # lower-case words joined by dashes
    check: Callable[[Sequence[Mapping[str, float]]], str | None]  # means by tag of each epoch -> the advice, or None


class Recipe(Protocol):
    """One training system."""

    name: str
    config_model: type[BaseModel]
    preparation: Preparation

    def presets(self) -> Sequence[str]:
        """Returns the names of the presets."""

    def config(self, values: Mapping[str, Any], preset: str = "") -> BaseModel:
        """Returns the validated config: defaults < preset < values; raises BadConfig naming key and near matches."""

    def shape(self, config: Any) -> StageShape:
        """Returns what the loop needs to know of `config`."""

    def samples(self, config: Any, cache: Any) -> SampleSource:
        """Returns the stage's samples from a `data.cache_reader.CacheReader`."""

    def collate(self, samples: Sequence[Sample]) -> Batch:
        """Stacks samples; raises BadData naming the key that cannot be stacked."""

    def model(self, config: Any) -> "torch.nn.Module":
        """Returns the model, initialised from the global torch generator."""

    def load_initial_weights(self, model: "torch.nn.Module", config: Any, state: Mapping[str, "torch.Tensor"]) -> None:
        """Loads an earlier stage's weights into a fresh model; raises BadConfig unless they fit."""

    def optimizer(self, model: "torch.nn.Module", config: Any) -> "torch.optim.Optimizer":
        """Returns the optimizer with its parameter groups."""

    def lr_factor(self, config: Any, step: int, steps_per_epoch: int, epochs: int) -> float:
        """Returns the learning-rate factor of optimizer step `step` (from 0); a pure function."""

    def step(self, model: "torch.nn.Module", batch: Batch, config: Any) -> StepOutput:
        """Runs forward and losses of one batch; `model` may be wrapped by DDP."""

    def picture(self, config: Any, batch: Batch, outputs: Any) -> npt.NDArray[np.uint8] | None:
        """Returns an (H, W, 3) RGB picture of the batch's first sample beside its truth, or None."""

    def checkpoint_names(self, epoch: int) -> Mapping[str, str]:
        """Returns file names by part: model, optimizer, scheduler, scaler, skipped; `epoch` counts from 0."""


@runtime_checkable
class Validates(Protocol):
    """A recipe with a validation split."""

    def validation_samples(self, config: Any, cache: Any) -> SampleSource | None:
        """Returns the samples of the split, None where this config has none; `epoch_draw(0)` is the whole of it."""

    def evaluate(self, model: "torch.nn.Module", batch: Batch, config: Any) -> Evaluation:
        """Runs one batch without gradients; `model` is bare, in eval mode, and holds the averaged weights if any."""

    def validation_metrics(self, config: Any, means: Mapping[str, float]) -> Mapping[str, float]:
        """Returns what is told as `val/<tag>`: the means, and what follows from them (a mean over classes)."""


@runtime_checkable
class MixesCaches(Protocol):
    """A recipe that trains on several caches at once.

    Where `cache` is asked for, it gets a mapping from dataset name to `data.cache_reader.CacheReader`, in the order of
    the run's `datasets`, even for one; other recipes get one reader, or None where the run names no dataset.
    """

    mixes_caches: bool


@runtime_checkable
class FinishesOnDevice(Protocol):
    """A recipe whose samples are kept small on their way; the rest of the work is done on the device, batch by batch.

    For what a GPU does in no time and a core does not: upsampling and scaling labels, changing types and axes.
    """

    def on_device(self, batch: Batch, config: Any) -> Batch:
        """Returns what `step` reads, from what `collate` gives; a pure function, on the batch's device."""


@runtime_checkable
class NamesFiles(Protocol):
    """A recipe whose file names depend on the config, or that shows its newest and best weights under extra names.

    Shown names begin `{kind}_seed{seed}_` where it `PartsRuns`, so that runs of a folder keep theirs apart.
    """

    def file_names(self, config: Any, epoch: int) -> Mapping[str, str]:
        """Returns `checkpoint_names` for a config; `ema` and `clipper` may be named too."""

    def shown_names(self, config: Any, epoch: int, *, newest: bool, best: bool) -> Sequence[str]:
        """Returns the names under which a local run's folder shows the weights of an epoch, besides their own."""


@runtime_checkable
class PartsRuns(Protocol):
    """A recipe whose runs may share a folder and a seed; of any other there is one."""

    def run_kind(self, config: Any) -> str:
        """Returns the word that parts such runs: each has checkpoints of its own."""


@runtime_checkable
class Inherits(Protocol):
    """A recipe whose stages take over keys of the `config.json` beside `load_file`; the others take over none."""

    inherited_keys: frozenset[str]


@runtime_checkable
class PartsKeys(Protocol):
    """A recipe that says which keys teach nothing, and which do nothing in a cluster; of others every key counts."""

    not_learned: frozenset[str]  # may differ between a checkpoint and the run that resumes it
    local_keys: Mapping[str, str]  # refused in a pod's job, with what says this there


@runtime_checkable
class NamesWeights(Protocol):
    """A recipe with keys that name a file of weights, on a laptop any, in a cluster one of the store's `weights/`."""

    weights_keys: frozenset[str]


@runtime_checkable
class Advises(Protocol):
    """A recipe with watch rules of its own, besides the engine's."""

    def watch_rules(self, config: Any) -> Sequence[WatchRule]:
        """Returns the rules; they are asked after every epoch."""


def recipe_names() -> list[str]:
    """Returns the names of every installed recipe."""
    return sorted({entry.name for entry in entry_points(group="lead.recipes")})


def near_recipe(name: str) -> str:
    """Returns the installed recipe whose name is much like this one, "" for none."""
    return next(iter(difflib.get_close_matches(name, recipe_names(), n=1)), "")


def load_recipe(name: str) -> Recipe:
    """Imports and returns the recipe `name`; raises NoSuchRecipe with the near matches."""
    for entry in entry_points(group="lead.recipes"):
        if entry.name == name:
            recipe: Recipe = entry.load()
            return recipe
    near = near_recipe(name)
    hint = f"did you mean {near!r}?" if near else f"installed recipes: {', '.join(recipe_names()) or 'none'}"
    raise NoSuchRecipe(f"recipe {name!r} is not installed in this image; {hint}")
