"""A run goes on where its recipe draws other epochs for another number of them: it counts the steps it has done."""

from pathlib import Path
from typing import Any

import numpy as np

from lead_protocol.exit_codes import ExitCode
from lead_protocol.store.folder import FolderStore
from lead_testing import toy_recipe
from lead_testing.toy_jobs import a_toy_job, manifests
from lead_testing.toy_runs import toy_recipe_with, train_here
from lead_trainer.contract.step import Position
from lead_trainer.engine.step.epoch_plan import StagePlan


class Growing(toy_recipe.ToySamples):
    """The later an epoch is, of as many as there are, the more it draws."""

    def epoch_draw(self, epoch: int) -> Any:
        return np.arange(len(self) * (epoch + 1) // self.config.epochs)


def test_more_epochs_of_other_lengths_are_trained_after_those_done(tmp_path: Path) -> None:
    seen: list[Position] = []

    def noted(config: Any, at: Position) -> float:
        seen.append(at)
        return 1.0

    store = FolderStore(tmp_path / "store")
    with toy_recipe_with(samples=lambda config, caches: Growing(config), lr_factor=noted):
        for attempt, epochs in ((1, 2), (2, 3)):
            job = a_toy_job(attempt, epochs=epochs).model_copy(update={"config": {"epochs": epochs}})
            assert train_here(store, tmp_path, job) == ExitCode.DONE
    assert [manifest.step for manifest in manifests(store)] == [3, 9, 15]  # 24 and 48, then 48 of 3 epochs
    assert seen[-1] == Position(14, 2, 5, (5, 4, 6)) and seen[-1].steps == 15


def test_a_plan_keeps_the_steps_that_were_planned() -> None:
    plan = StagePlan.of([4, 8, 8], rank_batch=4)
    assert plan.after(0, 0) == plan.after(2, 12) == plan.after(4, 99) == plan
    assert plan.after(2, 5).epoch_steps == (3, 2, 8)
