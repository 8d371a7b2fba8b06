"""Samples equal those of LEAD's own loader on the same tree: integers bit for bit, floats to 1e-6."""

import pytest

from lead_testing.golden_samples import FLOATS_WITHIN, deviations, golden

TAGS = [
    f"{frame}/{stage}/{view}"
    for frame, stages in {
        "a101_f08": 2, "a101_f22_last_pretrain": 1, "a102_f09_crowd": 2, "a104_f01_short": 1, "c201_f09_grid_dup": 2,
        "c201_f11_nopert": 2, "c202_f08_green": 2, "c202_f10_europe_special": 2, "c203_f09_depth16": 2,
        "c204_f01_short_empty": 1, "s301_f12_red_brake": 2, "s301_f15_late": 2, "s302_f08_parkingcutin": 2,
        "s302_f13_door_closed": 2, "s302_f14_door_left": 2, "s302_f15_door_right": 2,
    }.items()
    for stage in ("planner", "pretrain")[2 - stages :]
    for view in ("normal", "pert")
]  # fmt: skip


@pytest.mark.parametrize("tag", TAGS)
def test_a_sample_equals_leads_in_every_key(tag: str) -> None:
    assert {key: deviation for key, deviation in deviations(tag) if not deviation <= FLOATS_WITHIN} == {}


def test_no_recorded_sample_is_left_out() -> None:
    assert set(TAGS) == set(golden())
