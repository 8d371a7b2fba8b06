"""The training guide's advice as watch rules with its numbers; one of the engine's name replaces the engine's.

A history holds the means of each epoch, oldest first; its length is the number of epochs done.
"""

import math
from collections.abc import Mapping, Sequence

from lead_trainer.contract.reports import WatchRule
from lead_trainer.engine.reporting.watch import BATCHES_PER_S, GPU_SHARE, oscillation, plateau, slow_loading
from lead_trainer.recipes.world.config import WorldConfig

History = Sequence[Mapping[str, float]]

LEARNING_FROM, REFINING_FROM = 0.1, 0.5  # shares of the epochs at which the guide's second and third stage begin
EXPECTED_DB = {"initialization": (15, 20), "learning": (20, 26), "refinement": (26, 28)}
PART_RATES = ("encoder_lr", "dynamics_lr", "decoder_lr")
LOW_DB, LOW_AFTER = 20.0, 10
WEAK_DB, WEAK_AFTER = 25.0, 50
NO_BETTER_EPOCHS = 10
GAP_DB = 2.0
COLLAPSED_DB = 0.3
LOW_GPU_SHARE, LOW_BATCHES_PER_S = 0.7, 2.0
FASTER = (
    "set data.num_workers=8, data.pin_memory=true, a larger batch_size, logging.log_interval=500, keep data on an SSD"
)


def stage_of(config: WorldConfig, epoch: int) -> str:
    """Returns the guide's name of the stage that an epoch, from 0, belongs to."""
    share = epoch / config.epochs
    return "initialization" if share < LEARNING_FROM else "learning" if share < REFINING_FROM else "refinement"


def stage_rules(config: WorldConfig) -> Sequence[WatchRule]:
    """Returns a rule for each stage that reports its beginning and what the guide expects of it."""

    def begins(stage: str, history: History) -> str | None:
        if not history or stage_of(config, len(history)) != stage or len(history) >= config.epochs:
            return None
        low, high = EXPECTED_DB[stage]
        found = history[-1].get("val/psnr", history[-1].get("train/psnr", math.nan))
        return (
            f"epoch {len(history) + 1} of {config.epochs} begins the stage {stage}; the guide expects {low} to {high} "
            f"dB in it on nuScenes mini, the last epoch had {found:.1f} dB"
        )

    return [
        WatchRule(f"stage-{stage}", lambda history, stage=stage: begins(stage, history))  # type: ignore[misc]
        for stage in ("learning", "refinement")
    ]


def rates(rate: str) -> str:
    """Returns what sets every learning rate: a part's own goes before `optimizer.lr`."""
    return f"optimizer.lr={rate} and {', '.join(PART_RATES)} the same"


def low_psnr(history: History) -> str | None:
    """Reconstruction is poor after the first epochs."""
    found = _last(history, "train/psnr")
    if len(history) < LOW_AFTER or found is None or found >= LOW_DB:
        return None
    return (
        f"train/psnr is {found:.1f} dB after {len(history)} epochs, expected {LOW_DB:g} dB; try {rates('5e-4')}, and "
        "look at the data with lead inspect batch"
    )


def flat_loss(history: History) -> str | None:
    """The loss does not fall."""
    message = plateau(history)
    return (
        message
        and f"{message.partition(';')[0]}: the learning rate may be too low, try {rates('5e-4')}; check the data"
    )


def swinging_loss(history: History) -> str | None:
    """The loss swings."""
    message = oscillation(history)
    return message and f"{message.partition(';')[0]}; the learning rate is too high, try {rates('5e-5')}"


def lost_loss(history: History) -> str | None:
    """No step of an epoch had a finite loss."""
    if not history or math.isfinite(history[-1].get("loss", math.nan)):
        return None
    return (
        f"no step of the last epoch had a finite loss; set {rates('5e-5')} and training.max_grad_norm=1.0, and find "
        "bad data with lead inspect nan"
    )


def weak_psnr(history: History) -> str | None:
    """Validation is poor late in the training."""
    found = _last(history, "val/psnr")
    if len(history) < WEAK_AFTER or found is None or found >= WEAK_DB:
        return None
    return f"val/psnr is {found:.1f} dB after {len(history)} epochs; the guide expects {WEAK_DB:g} dB on nuScenes mini"


def no_better(history: History) -> str | None:
    """Validation has stopped improving."""
    values = [epoch["val/psnr"] for epoch in history if "val/psnr" in epoch]
    if len(values) <= NO_BETTER_EPOCHS or max(values[-NO_BETTER_EPOCHS:]) > max(values[:-NO_BETTER_EPOCHS]):
        return None
    return (
        f"val/psnr has not been better than {max(values):.2f} dB for {NO_BETTER_EPOCHS} epochs; stop here, or lower "
        "the learning rate"
    )


def gap(history: History) -> str | None:
    """Training is much better than validation."""
    train, val = _last(history, "train/psnr"), _last(history, "val/psnr")
    if train is None or val is None or train - val <= GAP_DB:
        return None
    return (
        f"train/psnr is {train:.1f} dB and val/psnr {val:.1f} dB: overfitting; set loss.latent_reg_weight=0.05, "
        "model.dynamics.dropout=0.2, and data.augmentation brightness 0.3, contrast 0.3, crop_scale [0.7,1.0]"
    )


def slow_training(history: History) -> str | None:
    """The GPU waits, or steps are slow."""
    if message := slow_loading(history):
        return f"{message.partition(';')[0]}; {FASTER}"
    share, rate = _last(history, GPU_SHARE), _last(history, BATCHES_PER_S)
    if share is not None and share < LOW_GPU_SHARE:
        return f"the GPU was busy for {share:.0%} of the time; {FASTER}"
    if share is not None and rate is not None and rate < LOW_BATCHES_PER_S:
        return f"{rate:.2g} batches a second; {FASTER}"
    return None


def collapsed(config: WorldConfig, history: History) -> str | None:
    """What is predicted is no better than the mean picture of the training set."""
    if len(history) <= config.first_predicting_epoch:
        return None
    found, mean = _last(history, "val/pred_psnr"), _last(history, "val/mean_picture_psnr")
    if found is None or mean is None or found > mean + COLLAPSED_DB:
        return None
    return (
        f"val/pred_psnr is {found:.2f} dB, the mean picture of the training set {mean:.2f} dB: predictions are no "
        "better than one picture for all; see metric/latent_spread, keep model.encoder.latent_norm=batch, train "
        "longer, or raise the lr"
    )


def watch_rules(config: WorldConfig) -> Sequence[WatchRule]:
    """Returns the rules of a training."""
    return (
        *stage_rules(config),
        WatchRule("low-psnr", low_psnr),
        WatchRule("plateau", flat_loss),
        WatchRule("oscillation", swinging_loss),
        WatchRule("lost-loss", lost_loss),
        WatchRule("weak-psnr", weak_psnr),
        WatchRule("no-better", no_better),
        WatchRule("gap", gap),
        WatchRule("slow-loading", slow_training),
        WatchRule("collapsed", lambda history: collapsed(config, history)),
    )


def warnings(config: WorldConfig) -> Sequence[str]:
    """Returns a sentence for each value that does not do what its name says, before a local run begins."""
    messages = []
    if config.use_dp:
        messages.append("use_dp: each process trains on one device; for several GPUs start torchrun --nproc_per_node=N")
    if config.distributed:
        messages.append(f"distributed: batch_size counted for one process, so the global batch is {config.batch_size}")
    optimizer = config.optimizer
    own = [getattr(optimizer, part) for part in PART_RATES]
    if None not in own and optimizer.lr not in own:
        messages.append(
            f"optimizer.lr={optimizer.lr:g} changes nothing: {', '.join(PART_RATES)} are set; set these too, or "
            "set them to null"
        )
    return messages


def _last(history: History, tag: str) -> float | None:
    value = history[-1].get(tag, math.nan) if history else math.nan
    return value if math.isfinite(value) else None
