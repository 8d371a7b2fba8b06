"""Advice for a person who trains: values that are seldom meant, and signs of a training that learns nothing."""

from collections.abc import Mapping, Sequence

from lead_trainer.contract.reports import WatchRule
from lead_trainer.recipes.nuplan.config import NuplanConfig

History = Sequence[Mapping[str, float]]
USUAL_BATCHES = (2, 4)  # of a GPU of 24 GB
AFTER_EPOCHS = 5  # before which no rule reports what a model has not learnt yet
LEAST_MAP = 0.02


def warnings(config: NuplanConfig) -> Sequence[str]:
    """Returns a sentence for each value that is allowed and seldom meant."""
    messages, (low, high) = [], USUAL_BATCHES
    if not low <= config.batch_size <= high:
        messages.append(
            f"batch_size is {config.batch_size}; {low} to {high} fit a GPU of 24 GB, with "
            "gradient_accumulation_steps=2 where it is below 4"
        )
    if not config.backbone_weights:
        messages.append("backbone_weights is not set: the image network begins with random weights")
    if config.data.augmentation.flip:
        messages.append("data.augmentation.flip mirrors the traffic: keep it for scenes where left and right are alike")
    return messages


def no_detections(history: History) -> str | None:
    """Nothing is detected after the first epochs."""
    if len(history) < AFTER_EPOCHS or (found := history[-1].get("val/mAP")) is None or found >= LEAST_MAP:
        return None
    return (
        f"val/mAP is {found:.3f} after {len(history)} epochs; check the boxes with lead inspect batch, try a larger "
        "loss.detection_weight or optimizer.lr"
    )


def worse_than_going_on(history: History) -> str | None:
    """Predicted ways are no better than constant velocity."""
    last = history[-1] if history else {}
    found, going_on = last.get("val/ADE"), last.get("val/ADE_constant_velocity")
    if len(history) < AFTER_EPOCHS or found is None or going_on is None or found < going_on:
        return None
    return (
        f"val/ADE is {found:.2f} m, constant velocity has {going_on:.2f} m: ways are not learnt; try a larger "
        "loss.prediction_weight, or more logs"
    )


def watch_rules(config: NuplanConfig) -> Sequence[WatchRule]:
    """Returns the rules that are asked after every epoch."""
    rules = []
    if config.loss.task_weights["detection"]:
        rules.append(WatchRule("no-detections", no_detections))
    if config.loss.task_weights["prediction"]:
        rules.append(WatchRule("worse-than-going-on", worse_than_going_on))
    return rules
