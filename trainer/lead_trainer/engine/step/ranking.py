"""Which epoch is the best so far, and whether early stopping ends the stage. Pure but for its own fields.

Every rank feeds it the same exact means, so every rank comes to the same answer.
"""

import math
import re
from collections.abc import Mapping

from lead_protocol.strict_model import StrictModel
from lead_trainer.contract.config_values import near_matches
from lead_trainer.contract.reports import VALIDATION
from lead_trainer.contract.training_keys import TrainingKeys
from lead_trainer.errors import BadConfig

METRIC_NAME = re.compile(r"[A-Za-z0-9_./-]{1,64}")  # what a progress record takes as the name of a metric


class Best(StrictModel):
    """The best value so far; part of a checkpoint."""

    value: float | None = None
    epoch: int = 0  # epochs completed when it was reached
    step: int = 0
    epochs_since: int = 0  # epochs judged since then


class Ranking:
    """The best value of one metric over the epochs of a stage."""

    def __init__(self, metric: str, *, greatest: bool = False, patience_epochs: int = 0) -> None:
        """`patience_epochs` 0 waits for ever."""
        self.metric, self.greatest, self.patience_epochs = metric, greatest, patience_epochs
        self.best = Best()

    def judge(self, values: Mapping[str, float], epoch: int, step: int) -> bool:
        """Notes the metric's value after an epoch and returns whether it is the best; no value counts as no better."""
        self._refuse_unknown(values)
        value = values.get(self.metric, math.nan)
        if self._better(value):
            self.best = Best(value=value, epoch=epoch, step=step)
            return True
        self.best = self.best.model_copy(update={"epochs_since": self.best.epochs_since + 1})
        return False

    @property
    def stops_early(self) -> bool:
        """Whether early stopping ends the stage now: `patience_epochs` epochs were no better than the best."""
        return 0 < self.patience_epochs <= self.best.epochs_since

    def _refuse_unknown(self, values: Mapping[str, float]) -> None:
        """Raises BadConfig for a metric that the first epoch judged does not give; a loss may have no finite value."""
        first = self.best.value is None and not self.best.epochs_since
        validated = any(tag.startswith(VALIDATION) for tag in values) or not self.metric.startswith(VALIDATION)
        if first and validated and self.metric not in values and not self.metric.endswith("loss"):
            known = sorted(values)
            raise BadConfig(
                f"best_metric: found {self.metric!r}, but an epoch of this run gives {', '.join(known)}"
                f"{near_matches(self.metric, known)}"
            )

    def _better(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        if self.best.value is None:
            return True
        return value > self.best.value if self.greatest else value < self.best.value


def ranking_of(config: TrainingKeys, *, validates: bool) -> Ranking:
    """Returns the ranking a stage asks for; raises BadConfig for a metric that it cannot have."""
    metric = config.best_metric or (f"{VALIDATION}loss" if validates else "loss")
    if not METRIC_NAME.fullmatch(metric):
        raise BadConfig(f"best_metric: found {metric!r}, expected the tag of a metric, for example val/loss")
    if metric.startswith(VALIDATION) and not validates:
        raise BadConfig(
            f"best_metric: found {metric!r}, but this run validates on nothing; add a validation split or rank by loss"
        )
    if metric.startswith(VALIDATION) and config.validate_every_epochs != 1 and config.patience_epochs:
        raise BadConfig(
            f"patience_epochs: found {config.patience_epochs} with validate_every_epochs "
            f"{config.validate_every_epochs}; patience counts epochs, so every epoch must be validated"
        )
    return Ranking(metric, greatest=config.best_is_greatest, patience_epochs=config.patience_epochs)
