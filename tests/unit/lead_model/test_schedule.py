"""Learning-rate schedules equal LEAD's and end with the run."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lead_testing.golden_model import golden_json
from lead_trainer.engine.step import schedule
from lead_trainer.recipes.lead.config_values import load_config
from lead_trainer.recipes.lead.recipe import lead_schedule

BASE_LR = 3e-4


@pytest.mark.parametrize(("steps_per_epoch", "epochs"), [(10, 31), (7, 3)])
def test_warm_restarts_equal_leads_table(steps_per_epoch: int, epochs: int) -> None:
    table = golden_json("optim_schedule")[f"lr_table_{steps_per_epoch}_steps_per_epoch_{epochs}_epochs"]
    restarts = schedule.warm_restarts(steps_per_epoch * epochs, steps_per_epoch)
    ours = [BASE_LR * restarts(step) for step in range(steps_per_epoch * epochs)]
    assert ours == pytest.approx(table["lr_logged_after_step"], abs=1e-16)
    lagging = schedule.lagging(restarts)
    used = [BASE_LR * lagging(step) for step in range(steps_per_epoch * epochs)]
    assert used == pytest.approx(table["lr_used_by_optimizer_step"], abs=1e-16)


def test_the_single_cosine_equals_leads_table() -> None:
    table = golden_json("optim_schedule")["single_cosine_first40_of_310"]["lr_used"]
    lagging = schedule.lagging(schedule.cosine(310))
    assert [BASE_LR * lagging(step) for step in range(40)] == pytest.approx(table, rel=1e-9)


@given(st.integers(1, 60), st.integers(1, 50))
def test_warm_restarts_end_low_for_any_number_of_epochs(epochs: int, steps_per_epoch: int) -> None:
    total = epochs * steps_per_epoch
    restarts = schedule.warm_restarts(total, steps_per_epoch)
    factors = [restarts(step) for step in range(total)]
    assert all(0.0 <= factor <= 1.0 for factor in factors)
    assert factors[0] == 1.0
    assert restarts(total) == pytest.approx(0.0, abs=1e-12)
    rises = sum(later > earlier for earlier, later in pairwise(factors))
    assert rises <= (epochs + 1).bit_length() - 1


def test_a_warm_up_rises_to_the_schedule() -> None:
    warm = schedule.warmed_up(schedule.constant, 4)
    assert [warm(step) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert schedule.warmed_up(schedule.constant, 0) is schedule.constant


@pytest.mark.parametrize("epochs", [2, 12, 31, 61])
@pytest.mark.parametrize("steps_per_epoch", [1, 4, 13])
def test_with_compat_restarts_come_where_leads_scheduler_has_them(epochs: int, steps_per_epoch: int) -> None:
    config = load_config({"compat": "lead"})
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=steps_per_epoch, T_mult=2)
    ours, used = lead_schedule(config, steps_per_epoch, epochs), []
    for step in range(epochs * steps_per_epoch):
        used.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step(step)
    assert [ours(step) for step in range(epochs * steps_per_epoch)] == pytest.approx(used, abs=1e-12)


def test_without_compat_the_last_cycle_ends_with_the_run_and_31_epochs_are_leads_anyway() -> None:
    ours, leads = load_config({}), load_config({"compat": {"fixed_restart_lengths": True}})
    assert lead_schedule(ours, 10, 12)(119) < 1e-3 < 0.3 < lead_schedule(leads, 10, 12)(119)
    both = [[lead_schedule(config, 10, 31)(step) for step in range(310)] for config in (ours, leads)]
    assert both[0] == pytest.approx(both[1], abs=1e-12)
