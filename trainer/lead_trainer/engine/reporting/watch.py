"""Watch rules: advice from the course of a run. Pure functions of the epochs' means.

A rule advises and changes nothing; its advisory goes to the log, to the progress record and from there to the resource.
Each rule fires once per stage, when its sign first appears; the history is part of a checkpoint, so a resumed run does
not repeat itself. Recipes add rules of their own (`Reports.watch_rules`).
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from lead_protocol.progress_record import Advisory
from lead_trainer.contract.checked_parts import BadPart
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.reports import WatchRule
from lead_trainer.contract.results import returned

History = Sequence[Mapping[str, float]]  # of each epoch, oldest first: `loss`, `val/…`, `watch/…`
WAITING = "watch/waiting_share"  # of the time, spent waiting for batches
BATCHES_PER_S = "watch/batches_per_s"  # of one process; absent for too short an epoch
GPU_SHARE = "watch/gpu_share"  # of the time that the GPU was busy, as its driver reports at the end of an epoch
YOUNG = "watch/young_share"  # of the averaged weights that are validated: what the first ones still weigh in them
_FLAT_EPOCHS = 10
_FLAT_SHARE = 0.01  # of the loss: less progress than this in _FLAT_EPOCHS epochs is none
_RISING_EPOCHS = 3
_SWINGS = 5  # epochs in a row in which the loss goes up and down by turns
_SWING_SHARE = 0.1
_GAP = 1.5  # validation loss over training loss
_GAP_EPOCHS = 3
_YOUNG_SHARE = 0.05  # an average with more of its first weights than this is worse for being young
_SLOW_SHARE = 0.3  # of the time, spent waiting for data
_MESSAGE_CHARS = 240


def own_rules(recipe: Recipe[Any], config: Any) -> Sequence[WatchRule]:
    """Returns a recipe's own rules; raises BadPart for what is none."""
    rules = returned(recipe.name, "reports.watch_rules", recipe.reports.watch_rules(config), list, tuple)
    for rule in rules:
        returned(recipe.name, "reports.watch_rules", rule, WatchRule, named="WatchRule in a list")
    return tuple(rules)


def advise(rules: Sequence[WatchRule], history: History, epoch: int) -> list[Advisory]:
    """Returns the advice of rules that fire after the last epoch of `history` and fired after none before.

    Of rules with the same name the last one counts: a recipe's rule replaces the engine's.
    """
    advice = []
    for rule in {rule.name: rule for rule in rules}.values():
        text = returned_text(rule, history)
        before = (rule.check(history[:end]) for end in range(1, len(history)))
        if text is not None and not any(before):
            advice.append(Advisory(rule=rule.name, epoch=epoch, message=one_line(text)))
    return advice


def returned_text(rule: WatchRule, history: History) -> str | None:
    """Returns a rule's advice; raises BadPart for what is no text."""
    text = rule.check(history)
    if text is not None and not isinstance(text, str):
        raise BadPart(f"watch rule {rule.name!r}: its check returned {text!r}, expected the advice as a text, or None")
    return text


def one_line(text: str) -> str:
    """Returns a text as a record can hold it: printable, on one line, not too long."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(printable.split())[:_MESSAGE_CHARS]


def plateau(history: History) -> str | None:
    """The loss has stopped falling."""
    losses = _of(history, "loss")
    if len(losses) <= _FLAT_EPOCHS:
        return None
    before, since = min(losses[:-_FLAT_EPOCHS]), min(losses[-_FLAT_EPOCHS:])
    if since < before - _FLAT_SHARE * abs(before):
        return None
    return (
        f"the loss has not fallen by 1 % in {_FLAT_EPOCHS} epochs (best {min(before, since):.4g}); if it is too high, "
        "try a higher lr and inspect the data and its labels; else train shorter"
    )


def divergence(history: History) -> str | None:
    """The loss rises epoch after epoch."""
    losses = _of(history, "loss")[-_RISING_EPOCHS - 1 :]
    if len(losses) <= _RISING_EPOCHS or any(after <= before for before, after in _pairs(losses)):
        return None
    return (
        f"the loss rose {_RISING_EPOCHS} epochs in a row, from {losses[0]:.4g} to {losses[-1]:.4g}; "
        "lower lr, add a warm-up, or clip gradients"
    )


def oscillation(history: History) -> str | None:
    """The loss swings."""
    losses = _of(history, "loss")[-_SWINGS - 1 :]
    changes = [after - before for before, after in _pairs(losses)]
    by_turns = all(one * other < 0 for one, other in _pairs(changes))
    if len(changes) < _SWINGS or not by_turns or min(map(abs, changes)) < _SWING_SHARE * abs(min(losses)):
        return None
    return f"the loss swings between {min(losses):.4g} and {max(losses):.4g} from epoch to epoch; lower lr"


def gap(history: History) -> str | None:
    """Validation is much worse than training, and not because the averaged weights have yet to follow."""
    both = [
        (epoch["loss"], epoch["val/loss"])
        for epoch in history
        if "loss" in epoch and "val/loss" in epoch and epoch.get(YOUNG, 0.0) <= _YOUNG_SHARE
    ]
    last = both[-_GAP_EPOCHS:]
    if len(last) < _GAP_EPOCHS or any(not 0 < _GAP * loss < validation for loss, validation in last):
        return None
    return (
        f"validation loss {last[-1][1]:.4g} is over {_GAP} times the training loss {last[-1][0]:.4g}; the model learns "
        "its data by heart: augment more, raise weight decay or dropout, or add data"
    )


def slow_loading(history: History) -> str | None:
    """Training waits for data."""
    share = history[-1].get(WAITING, 0.0) if history else 0.0
    if share < _SLOW_SHARE:
        return None
    return (
        f"{share:.0%} of the last epoch was spent waiting for batches; raise the loader's threads and the batches made "
        "ahead, or keep the session cache on a local SSD"
    )


ENGINE_RULES = (
    WatchRule("plateau", plateau),
    WatchRule("divergence", divergence),
    WatchRule("oscillation", oscillation),
    WatchRule("gap", gap),
    WatchRule("slow-loading", slow_loading),
)


def _of(history: History, tag: str) -> list[float]:
    return [epoch[tag] for epoch in history if math.isfinite(epoch.get(tag, math.nan))]


def _pairs(values: Sequence[float]) -> list[tuple[float, float]]:
    return list(pairwise(values))
