"""Finds what stands where on a line: classes whose number the data say, and mean average precision over them.

Raw data: files `<route>/<frame>.txt`, a line an object, `class place`; the line has 16 places.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import nn
from torch.nn import functional
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from lead_trainer.contract.preparation import Counts, Preparation
from lead_trainer.contract.raw_data import RouteVerdict, SampleKey, Scan, SourceTree
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.samples import Batch, Cache, Caches, Sample, Samples
from lead_trainer.contract.step import Facts, StepContext, StepOutput
from lead_trainer.contract.training_keys import TrainingKeys
from lead_trainer.contract.trees import Trees
from lead_trainer.contract.validation import Evaluation, Validation
from lead_trainer.data.array_block import pack_arrays, unpack_arrays
from lead_trainer.data.plain_scan import known_collections, plain_scan
from lead_trainer.errors import BadData

PLACES, MOST_CLASSES = 16, 32


class Config(TrainingKeys):
    epochs: int = 3
    batch_size: int = 4
    precision: str = "fp32"
    num_threads: int = 1
    data_root: str = "."
    lr: float = 0.05


class Lines(Preparation):
    version, default_collections = "lines/1", ("train", "val")

    def config_keys(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        return {}

    def scan(self, tree: SourceTree, config: Mapping[str, Any], collections: Sequence[str]) -> Scan:
        files = [file for file in tree.files() if file.path.endswith(".txt")]
        sizes = {SampleKey(file.path.rpartition("/")[0], int(file.path[-8:-4])): file.size for file in files}
        verdicts = [RouteVerdict(route, True, "kept", 1) for route in sorted({key.route for key in sizes})]
        rows = {
            name: [key for key in sizes if key.route.startswith(name)]
            for name in known_collections(collections, self.default_collections)
        }
        return plain_scan(verdicts, rows, sizes.__getitem__)

    def record(self, tree: SourceTree, config: Mapping[str, Any], sample: SampleKey) -> Mapping[str, bytes]:
        path = f"{sample.route}/{sample.frame:04d}.txt"
        objects = np.zeros((MOST_CLASSES, PLACES), np.float32)
        for line in tree.read(path).decode().splitlines():
            try:
                kind, place = map(int, line.split())
                objects[kind, place] = 1.0
            except (ValueError, IndexError) as error:
                raise BadData(f"file {path}: found {line!r}, expected a class below 32 and a place below 16") from error
        return {"objects": pack_arrays({"objects": objects}, compress=False)}

    def route_metas(self, tree: SourceTree, config: Mapping[str, Any], route: str, frames: Sequence[int]) -> Any:
        return pa.table({"frame": pa.array(frames, pa.int32())})

    def counts(self, config: Mapping[str, Any], sample: SampleKey, record: Mapping[str, memoryview]) -> Counts:
        objects = unpack_arrays(record["objects"], compressed=False)["objects"]
        return {"objects": objects.sum(1).astype(np.int64)}

    def facts(self, config: Mapping[str, Any], counts: Counts) -> Mapping[str, Sequence[float]]:
        return {"objects": counts["objects"].tolist()}


class Scenes(Samples):
    """The lines of one collection, with noise for a picture."""

    def __init__(self, cache: Cache, collection: str) -> None:
        self.cache, self.rows = cache, cache.rows(collection)

    def __len__(self) -> int:
        return len(self.rows.sample)

    def epoch_draw(self, epoch: int) -> npt.NDArray[np.int64]:
        return np.arange(len(self))

    def load(self, index: int, epoch: int) -> Sample:
        record = self.cache.fields(int(self.rows.sample[index]))
        objects = unpack_arrays(record["objects"], compressed=False)["objects"]
        noise = np.random.default_rng([index, epoch]).normal(scale=0.1, size=objects.shape)
        return {"seen": (objects + noise).astype(np.float32), "objects": np.array(objects)}


class AveragePrecision(Metric):
    """Mean over classes of the average precision of (score, whether there is an object), over all samples."""

    full_state_update = False
    scores: list[torch.Tensor]
    truth: list[torch.Tensor]

    def __init__(self, classes: Sequence[int]) -> None:
        super().__init__()
        self.classes = list(classes)
        self.add_state("scores", default=[], dist_reduce_fx="cat")
        self.add_state("truth", default=[], dist_reduce_fx="cat")

    def update(self, scores_BCP: torch.Tensor, truth_BCP: torch.Tensor) -> None:
        """Adds scores and objects, (B, C, places)."""
        self.scores.append(scores_BCP.double().cpu())
        self.truth.append(truth_BCP.cpu())

    def compute(self) -> dict[str, float]:
        """Returns `mAP`, and `AP/<class>` of each class."""
        scores, truth = dim_zero_cat(self.scores), dim_zero_cat(self.truth)
        each = {f"AP/{kind}": _average(scores[:, row].flatten(), truth[:, row].flatten())
                for row, kind in enumerate(self.classes)}  # fmt: skip
        return {**each, "mAP": float(np.mean(list(each.values())))}


def _average(scores: torch.Tensor, truth: torch.Tensor) -> float:
    hits = truth[torch.argsort(scores, descending=True, stable=True)]
    precision = torch.cumsum(hits, 0) / torch.arange(1, len(hits) + 1)
    return float((precision * hits).sum() / hits.sum().clamp(min=1))


def only(caches: Caches) -> Cache:
    (cache,) = caches.values()
    return cache


def facts(config: Config, caches: Caches) -> Facts:
    """Returns the classes that occur and how often: the model has an output for each."""
    counts = only(caches).facts["objects"]
    return {"classes": [kind for kind, count in enumerate(counts) if count], "counts": [n for n in counts if n]}


class Detector(nn.Module):
    """A score (B, classes, places) for each class at each place."""

    def __init__(self, classes: Sequence[int]) -> None:
        super().__init__()
        self.classes = list(classes)
        self.net = nn.Sequential(
            nn.Conv1d(MOST_CLASSES, 16, 3, padding=1), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1),
            nn.Conv1d(16, len(self.classes), 1),
        )  # fmt: skip

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.net(seen)
        return scores


def step(model: nn.Module, batch: Batch, context: StepContext[Config]) -> StepOutput:
    scores, truth = model(batch["seen"]), batch["objects"][:, context.facts["classes"]]
    rare = torch.tensor([1.0 / count for count in context.facts["counts"]], device=scores.device)
    losses = functional.binary_cross_entropy_with_logits(scores, truth, reduction="none").mean((0, 2))
    return StepOutput((losses * rare / rare.sum()).sum(), {"plain": losses.mean().detach()})


def evaluate(model: nn.Module, batch: Batch, context: StepContext[Config]) -> Evaluation:
    scores, truth = model(batch["seen"]), batch["objects"][:, context.facts["classes"]]
    context.metrics["detection"].update(scores, truth)
    losses = functional.binary_cross_entropy_with_logits(scores, truth, reduction="none").mean((1, 2))
    return Evaluation({"loss": (losses.sum(), len(losses))})


RECIPE = Recipe[Config](
    name="detection",
    config_model=Config,
    preparation=Lines(),
    samples=lambda config, caches: Scenes(only(caches), "train"),
    facts=facts,
    model=lambda config, facts: Detector(facts["classes"]),
    step=step,
    optimizer=lambda model, config: torch.optim.AdamW(model.parameters(), lr=config.lr),
    validation=Validation(
        samples=lambda config, caches: Scenes(only(caches), "val"),
        evaluate=evaluate,
        metrics=lambda config, facts: {"detection": AveragePrecision(facts["classes"])},
    ),
    trees=Trees(root=lambda config: config.data_root),
)
