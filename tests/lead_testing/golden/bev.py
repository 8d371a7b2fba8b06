"""Our metrics and losses of the recipe `nuplan` on given arrays, in the layout of the expected values."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from lead_trainer.recipes.nuplan.comfort import plain_comfort, smoothed_comfort
from lead_trainer.recipes.nuplan.loss_terms.boxes import centre_focal
from lead_trainer.recipes.nuplan.loss_terms.grids import known_cross_entropy, layer_cross_entropy, layer_dice
from lead_trainer.recipes.nuplan.loss_terms.ways import way_losses
from lead_trainer.recipes.nuplan.loss_terms.weighting import learned_sum
from lead_trainer.recipes.nuplan.metric_states.average_precision import Precision
from lead_trainer.recipes.nuplan.metric_states.cells import LayerOverlap, OccupancyRightness
from lead_trainer.recipes.nuplan.metric_states.collisions import along_ways, collides, rectangles
from lead_trainer.recipes.nuplan.metric_states.detection import DetectionPrecision
from lead_trainer.recipes.nuplan.metric_states.ways import WayErrors, way_rows

Arrays = Mapping[str, npt.NDArray[Any]]
MODES = (1, 2, 6)


def numbers(source: str) -> dict[str, Any]:
    """Returns every number for an `.npz` of such arrays."""
    with np.load(source) as file:
        arrays = {name: file[name] for name in file.files}
    return {
        "detection": detection(arrays),
        "grids": grids(arrays),
        "trajectories": {f"K={modes}": trajectories(arrays, modes) for modes in MODES},
        "collisions": collisions(arrays),
        "comfort": {
            "plain": plain_comfort(arrays["comfort|log"]),
            "nuplan_devkit_at_centre": smoothed_comfort(arrays["comfort|log"]),
        },
        "losses": losses(arrays),
    }


def detection(arrays: Arrays) -> dict[str, Any]:
    """Returns AP and errors by class, and their mean AP."""
    metric = DetectionPrecision()
    truth, guess = (torch.from_numpy(arrays[f"detection|{name}"]) for name in ("truth", "guess"))
    metric.update(truth[:, 0], truth[:, 1:], guess[:, 0], guess[:, 1:])
    return {
        "by_class": {name: of_class(found) for name, found in metric.by_class().items()},
        "mAP": metric.compute()["mAP"],
    }


def of_class(found: Precision) -> dict[str, Any]:
    """Returns what was found of one class."""
    return {
        "ap": {str(threshold): value for threshold, value in found.by_threshold.items()},
        "mean_ap": found.mean,
        "tp_at_2m": dict(found.errors),
        "truths": found.truths,
    }


def grids(arrays: Arrays) -> dict[str, Any]:
    """Returns overlap of classes, and occupancy of class 0."""
    logits, truth, known = (torch.from_numpy(arrays[f"grids|{name}"]) for name in ("logits", "truth", "known"))
    overlap, occupancy = LayerOverlap([str(number) for number in range(logits.shape[1])]), OccupancyRightness()
    overlap.update(logits, truth)
    occupancy.update(logits[:, 0], truth[:, 0], known)
    means, cells = overlap.compute(), occupancy.compute()
    return {
        "iou_by_class": [None if math.isnan(iou) else iou for iou in overlap.by_layer().values()],
        "mIoU_over_classes_in_truth_or_prediction": means["mIoU"],
        "mIoU_over_classes_in_truth": means["mIoU_of_truth"],
        "occupancy_known_cells": {name.removeprefix("occupancy_"): value for name, value in cells.items()},
    }


def trajectories(arrays: Arrays, modes: int) -> dict[str, Any]:
    """Returns errors of the first modes, of whole ways and of all that are known somewhere."""
    truth, guess, chances, valid = (
        torch.from_numpy(arrays[f"trajectories|{name}"]) for name in ("truth", "guess", "p", "valid")
    )
    guess, chances = guess[:, :modes], chances[:, :modes] / chances[:, :modes].sum(1, keepdim=True)
    every, whole = WayErrors(), WayErrors()
    every.update(way_rows(guess, chances, truth, valid))
    complete = valid.all(1)
    whole.update(way_rows(guess[complete], chances[complete], truth[complete], valid[complete]))
    found, of_whole = every.compute(), whole.compute()
    return {
        "devkit_on_whole_futures": {
            "agents": int(complete.sum()),
            "minADE": of_whole["ADE"],
            "minFDE": of_whole["FDE"],
            "miss_max_2m": of_whole["miss_rate_max"],
        },
        "masked": {
            "agents": int(valid.any(1).sum()),
            "minADE": found["ADE"],
            "minFDE": found["FDE"],
            "miss_rate_final_over_2m": found["miss_rate"],
            "mode_recall": found["mode_recall"],
            "mode_precision": found["mode_precision"],
        },
    }


def collisions(arrays: Arrays) -> dict[str, Any]:
    """Returns the share of agents whose likeliest way runs into another's true box."""
    truth, guess, chances, valid, size, place = (
        arrays[f"trajectories|{name}"] for name in ("truth", "guess", "p", "valid", "size", "place")
    )
    likeliest = guess[np.arange(len(guess)), chances.argmax(1)] + place[:, None]
    true, sizes = truth + place[:, None], np.broadcast_to(size[:, None], (*truth.shape[:2], 2))
    known = valid.any(1)
    hits = collides(
        rectangles(likeliest, along_ways(likeliest, place), sizes)[known],
        rectangles(true, along_ways(true, place), sizes)[known],
        valid[known],
    )
    return {"agents": int(known.sum()), "collision_rate": float(hits.mean())}


def losses(arrays: Arrays) -> dict[str, Any]:
    """Returns each loss term."""
    given = {name.removeprefix("losses|"): torch.from_numpy(arrays[name]) for name in arrays if name[:7] == "losses|"}
    future = given["future"]
    way = way_losses(
        given["mean"], given["log_sigma"], given["mode_scores"], future, torch.ones(future.shape[:2], dtype=torch.bool)
    )
    tasks, spreads = dict(enumerate(given["task_losses"])), dict(enumerate(given["s"]))
    named = {str(task): loss for task, loss in tasks.items()}, {str(task): s for task, s in spreads.items()}
    seg = given["seg_logits"], given["seg_target"]
    return {
        "focal_centre_heatmap": float(centre_focal(given["heat"], given["heat_target"])),
        "seg_bce": float(layer_cross_entropy(*seg)),
        "seg_dice_smooth_1": float(layer_dice(*seg)),
        "occupancy_bce_known": float(known_cross_entropy(seg[0][:, 0], seg[1][:, 0], given["known"])),
        "prediction": {
            "nll_best_mode_per_step": float(way.nll),
            "ade_best_mode": float(way.ade),
            "fde_best_mode": float(way.fde),
            "mode_cross_entropy": float(way.modes),
        },
        "uncertainty_weighted": float(learned_sum(*named)),
    }
