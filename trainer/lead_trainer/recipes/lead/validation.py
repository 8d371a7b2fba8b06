"""The validation split: whole routes that are never trained on, and what is measured on them.

LEAD has none. A route belongs to it by its town or by a hash of its name, so every seed, stage and restart has the same
split, and a route that is added later moves no other. Called by the recipe object.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lead_trainer.contract.samples import Batch, Cache, Indices
from lead_trainer.contract.validation import Evaluation
from lead_trainer.data.cache_tables import CollectionRows, MetaColumns
from lead_trainer.errors import BadConfig
from lead_trainer.metrics.rater_feedback import rater_feedback_score
from lead_trainer.metrics.totals import batch_totals
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.data_sources import WAYMO
from lead_trainer.recipes.lead.dataset_real import UNRATED, WAYMO_STEP
from lead_trainer.recipes.lead.loss_terms.per_sample import perception_samples, samples_of
from lead_trainer.recipes.lead.losses import compute_losses, loss_weights, source_of
from lead_trainer.recipes.lead.metrics import compute_metrics
from lead_trainer.recipes.lead.model import Predictions
from lead_trainer.recipes.lead.network.planner import Plan
from lead_trainer.recipes.lead.prepare_waymo import RATED_STEPS
from lead_trainer.recipes.lead.stage_rows import PER_ROW

# What a validation sample has none of: chance.
AS_RECORDED = {
    "use_sensor_perburtation": False,
    "use_color_aug": False,
    "carla_num_samples": -1,
    "navsim_num_samples": -1,
    "waymo_e2e_num_training_samples": -1,
    "waymo_e2e_subsample_factor": 1,
}


def is_validation_route(route: str, config: LeadConfig) -> bool:
    """Returns whether a route, named by its folder, is held out."""
    if any(town in route for town in config.validation_towns):
        return True
    number = int.from_bytes(hashlib.sha256(route.encode()).digest()[:8], "big")
    return number / 2**64 < config.validation_fraction


@dataclass(frozen=True)
class CachePart:
    """One side of the split, as a cache that holds no other rows."""

    cache: Cache
    split: LeadConfig
    held_out: bool

    @property
    def config(self) -> Mapping[str, Any]:
        """The config values the cache was built with."""
        return self.cache.config

    @property
    def digest(self) -> str:
        """The cache's name."""
        return self.cache.digest

    @property
    def facts(self) -> Mapping[str, Sequence[float]]:
        """What the build states of both sides together."""
        return self.cache.facts

    def rows(self, collection: str) -> CollectionRows:
        """Returns this side's rows, the held-out ones once each; raises BadConfig where a side is empty."""
        rows: CollectionRows = self.cache.rows(collection)
        routes = rows.route.used()
        held = rows.route.isin(frozenset(route for route in routes if is_validation_route(route, self.split)))
        if held.all() or not held.any():
            side = "training" if held.all() else "validation"
            raise BadConfig(
                f"validation_fraction, validation_towns: they leave no route of {collection} for {side}; "
                f"it has {len(routes)} routes; a stage takes both over from load_file's: name others, "
                "or switch them off (validation_fraction=0 validation_towns=[])"
            )
        chosen = held if self.held_out else ~held
        kept: dict[str, Any] = {name: getattr(rows, name)[chosen] for name in PER_ROW}
        if self.held_out:
            kept["mixture"] = (1.0,) * len(rows.mixture)
        return replace(rows, **kept)

    def metas(self) -> MetaColumns:
        """Ego metas of every frame."""
        metas: MetaColumns = self.cache.metas()
        return metas

    def fields(self, sample: int) -> Mapping[str, memoryview]:
        """Checked record of one sample."""
        return self.cache.fields(sample)

    def sample_shards(self, samples: npt.NDArray[np.integer]) -> Indices:
        """Returns the shard of each sample, by the samples' numbers."""
        return self.cache.sample_shards(samples)

    def fetch_shard(self, shard: int) -> bool:
        """Fetches a shard to this node."""
        return self.cache.fetch_shard(shard)


@torch.no_grad()
def evaluate(config: LeadConfig, predictions: Predictions, batch: Batch) -> Evaluation:
    """Returns losses, LEAD's metrics, and per class the pixels that agree and that are in either.

    Of mixed data sets also, for each term of the loss, the share of samples that have its label.
    """
    report = compute_losses(config, predictions, batch)
    metrics = compute_metrics(config, predictions, batch)
    samples = len(batch["source_dataset"])
    values = {"loss": report.total}
    values |= {name.removeprefix("metric/"): value for name, value in metrics.items()}
    totals: dict[str, tuple[Tensor, Tensor | int]] = {
        name: (value.double() * samples, samples) for name, value in values.items()
    }
    for name, value in report.raw.items():
        labelled = labelled_samples(config, name, batch)
        totals[name] = (value.double() * labelled, labelled)
        if config.mixed_data_training:
            totals[share_tag(name)] = (torch.as_tensor(labelled), samples)
    carla = perception_samples(batch)
    for head, classes in heads(config).items():
        logits: Tensor | None = getattr(predictions, head)
        if logits is not None and head in batch:
            totals |= _overlaps(head, logits.argmax(dim=1)[carla], batch[head].long()[carla], classes)
    return Evaluation(totals | _rater_feedback(predictions.plan, batch))


def heads(config: LeadConfig) -> Mapping[str, int]:
    """Returns the number of classes of each head that labels pixels."""
    return {"semantic": config.num_semantic_classes, "bev_semantic": config.num_bev_semantic_classes}


def overlap_tag(head: str, index: int) -> str:
    """Returns the tag of a class's intersection over union."""
    return f"{head}_iou_{index}"


def share_tag(loss: str) -> str:
    """Returns the tag of the share of samples that have a loss term's label."""
    return f"labelled/{loss}"


def labelled_samples(config: LeadConfig, loss: str, batch: Batch) -> Tensor | int:
    """Returns how many samples a raw loss is the mean of: all have waypoints, one data set has the rest."""
    if loss == "loss_spatio_temporal_waypoints":
        return len(batch["source_dataset"])
    return samples_of(batch, source_of(config, loss)).sum()


def _rater_feedback(plan: Plan | None, batch: Batch) -> dict[str, tuple[Tensor, Tensor | int]]:
    """Returns Waymo's score of the rated frames, under LEAD's tag; nothing for a plan that does not reach 5 s."""
    waypoints = plan.future_waypoints if plan is not None else None
    if "ratings" not in batch or waypoints is None or waypoints.shape[1] * WAYMO_STEP != RATED_STEPS:
        return {}
    between = (waypoints[:, :-1] + waypoints[:, 1:]) / 2
    # Waypoints end at 4.75 s; as in LEAD, the car stands there until 5 s.
    path = torch.stack((waypoints, torch.cat((between, waypoints[:, -1:]), dim=1)), dim=2).flatten(1, 2)
    ratings = batch["ratings"].where(samples_of(batch, WAYMO)[:, None], UNRATED)
    return batch_totals({"rfm": rater_feedback_score(path, batch["rated_trajectories"], ratings, batch["speed"])})


def _overlaps(head: str, guess: Tensor, truth: Tensor, classes: int) -> dict[str, tuple[Tensor, Tensor | int]]:
    pairs = torch.bincount((truth * classes + guess).flatten(), minlength=classes**2).view(classes, classes)
    hits, union = pairs.diagonal(), pairs.sum(dim=0) + pairs.sum(dim=1) - pairs.diagonal()
    return {overlap_tag(head, index): (hits[index].double(), union[index]) for index in range(classes)}


def with_loss_of_all_sets(config: LeadConfig, means: Mapping[str, float]) -> Mapping[str, float]:
    """Returns the means; where data sets are mixed, `loss` is what a batch with each of them has, as in training.

    A batch of the split has samples of one set: the mean of their totals would follow the sizes of the sets. There is
    no `loss` where a term with labels was never finite: the sum of the others would make the failure the best.
    """
    if not config.mixed_data_training:
        return means
    weights = loss_weights(config)
    shares = {share_tag(name) for name in weights}
    shown = {name: value for name, value in means.items() if name not in shares}
    if any(means.get(share_tag(name), 0) > 0 and name not in shown for name in weights):
        return {name: value for name, value in shown.items() if name != "loss"}
    return {**shown, "loss": sum(weights[name] * value for name, value in shown.items() if name in weights)}


def with_means_over_classes(config: LeadConfig, means: Mapping[str, float]) -> dict[str, float]:
    """Returns the means and, for each head, `<head>_miou` over the classes that occur in truth or prediction."""
    shown = {name: value for name, value in means.items() if np.isfinite(value)}
    for head, classes in heads(config).items():
        of_head = [shown[tag] for tag in (overlap_tag(head, index) for index in range(classes)) if tag in shown]
        if of_head:
            shown[f"{head}_miou"] = float(np.mean(of_head))
    return shown
