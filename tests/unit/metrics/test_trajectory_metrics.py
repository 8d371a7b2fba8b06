"""Displacement and forecasting metrics: hand cases at the borders, and what masks, ties and missing modes mean."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lead_trainer.metrics.displacement import angle_error, average_displacement, final_displacement
from lead_trainer.metrics.forecasting import Forecast, forecast_metrics, metrics_at, most_probable_first
from lead_trainer.metrics.totals import Totals, batch_totals, by_class

TRUTH = torch.tensor([[[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]])


def shifted(*offsets: tuple[float, float, float], probabilities: tuple[float, ...] | None = None) -> Forecast:
    """Returns one agent's modes that miss TRUTH by these many metres in y at each step."""
    modes = [TRUTH[0] + torch.tensor([[0.0, dy] for dy in mode]) for mode in offsets]
    weights = probabilities or (1 / len(offsets),) * len(offsets)
    return Forecast(torch.stack(modes)[None], torch.tensor([weights]))


def test_average_and_final_displacement_of_a_hand_case() -> None:
    forecast = shifted((0.0, 1.0, 2.0), (3.0, 3.0, 3.0))
    assert average_displacement(forecast.trajectories, TRUTH).tolist() == [[1.0, 3.0]]
    assert final_displacement(forecast.trajectories, TRUTH).tolist() == [[2.0, 3.0]]


def test_steps_without_truth_are_not_counted_and_the_last_is_the_last_known() -> None:
    truth = TRUTH.clone()
    truth[0, 0], truth[0, 2] = math.nan, math.nan
    forecast = shifted((5.0, 1.0, 9.0))
    assert average_displacement(forecast.trajectories, truth).tolist() == [[1.0]]
    assert final_displacement(forecast.trajectories, truth).tolist() == [[1.0]]
    assert metrics_at(forecast, truth, 1)["MissRate_2_1"].tolist() == [0.0]


def test_an_agent_without_any_truth_counts_nowhere() -> None:
    truth = torch.cat([TRUTH, torch.full_like(TRUTH, math.nan)])
    both = Forecast(shifted((1.0, 1.0, 1.0)).trajectories.repeat(2, 1, 1, 1), torch.ones(2, 1))
    means = Totals().add(forecast_metrics(both, truth)).means()
    assert {tag: round(value, 12) for tag, value in means.items()} == {
        "minADE_1": 1.0, "minADE_1_bestFDE": 1.0, "minFDE_1": 1.0, "MR_1": 0.0, "MissRate_2_1": 0.0,
        "brier_minFDE_1": 1.0, "brier_minFDE_1_bestFDE": 1.0}  # fmt: skip
    assert Totals().add(forecast_metrics(both, truth)).counts["MR_1"] == 1


@pytest.mark.parametrize(("metres", "misses", "nuscenes_misses"), [(1.999999, 0, 0), (2.0, 0, 1), (2.000001, 1, 1)])
def test_exactly_two_metres_is_a_miss_for_nuscenes_alone(metres: float, misses: int, nuscenes_misses: int) -> None:
    truth = torch.zeros(1, 3, 2, dtype=torch.float64)
    predicted = torch.tensor([[[[0.0, 0.0], [0.0, 0.0], [0.0, metres]]]], dtype=torch.float64)
    found = metrics_at(Forecast(predicted, torch.ones(1, 1)), truth, 1)
    assert (found["MR_1"].item(), found["MissRate_2_1"].item()) == (misses, nuscenes_misses)


def test_nuscenes_looks_at_the_whole_path_and_argoverse_at_its_end() -> None:
    found = metrics_at(shifted((0.0, 2.5, 0.0)), TRUTH, 1)
    assert (found["MR_1"].item(), found["MissRate_2_1"].item()) == (0.0, 1.0)


def test_the_two_readings_of_min_ade_differ_where_the_best_end_has_the_worse_path() -> None:
    found = metrics_at(shifted((3.0, 3.0, 0.0), (1.0, 1.0, 1.0)), TRUTH, 6)
    assert (found["minADE_6"].item(), found["minADE_6_bestFDE"].item()) == (1.0, 2.0)


def test_brier_adds_the_squared_doubt_in_the_mode() -> None:
    forecast = shifted((0.0, 0.0, 1.0), (0.0, 0.0, 1.1), probabilities=(0.1, 0.9))
    found = metrics_at(forecast, TRUTH, 6)
    assert found["brier_minFDE_6"].item() == pytest.approx(1.1 + 0.01)
    assert found["brier_minFDE_6_bestFDE"].item() == pytest.approx(1.0 + 0.81)


def test_k_means_the_most_probable_modes_and_equal_ones_keep_their_order() -> None:
    forecast = shifted((0, 0, 0), (1, 1, 1), (2, 2, 2), probabilities=(0.2, 0.5, 0.3))
    assert [metrics_at(forecast, TRUTH, k)[f"minFDE_{k}"].item() for k in (1, 2, 3)] == [1.0, 1.0, 0.0]
    assert most_probable_first(torch.tensor([[0.25, 0.5, 0.25]])).tolist() == [[1, 0, 2]]


def test_d_41_every_reported_k_that_there_are_modes_for_is_reported() -> None:
    def reported(modes: int) -> set[str]:
        return {tag for tag in forecast_metrics(shifted(*[(0, 0, float(n)) for n in range(modes)]), TRUTH)
                if tag.startswith("minFDE") and not tag.startswith("brier")}  # fmt: skip

    assert reported(1) == {"minFDE_1"}
    assert reported(6) == {"minFDE_1", "minFDE_5", "minFDE_6"}
    assert reported(10) == {"minFDE_1", "minFDE_5", "minFDE_6", "minFDE_10"}
    assert metrics_at(shifted((0, 0, 1.0)), TRUTH, 5)["minFDE_5"].item() == 1.0


def test_d_33_yaw_error_is_wrap_safe() -> None:
    degrees = torch.tensor([179.0, 10.0, -90.0, 0.0])
    other = torch.tensor([-179.0, 350.0, 90.0, 360.0])
    error = torch.rad2deg(angle_error(torch.deg2rad(degrees), torch.deg2rad(other)))
    torch.testing.assert_close(error, torch.tensor([2.0, 20.0, 180.0, 0.0]), atol=1e-4, rtol=0)


@given(st.floats(-20, 20), st.floats(-20, 20), st.integers(-3, 3))
def test_yaw_error_is_symmetric_periodic_and_at_most_half_a_turn(first: float, second: float, turns: int) -> None:
    one, two = torch.tensor(first, dtype=torch.float64), torch.tensor(second, dtype=torch.float64)
    error = angle_error(one, two)
    assert 0 <= error <= math.pi + 1e-9
    torch.testing.assert_close(angle_error(two, one + 2 * math.pi * turns), error, atol=1e-9, rtol=0)


@given(st.integers(1, 40), st.integers(1, 7), st.integers(1, 4))
def test_means_do_not_depend_on_how_items_are_dealt_to_batches_and_ranks(items: int, batch: int, ranks: int) -> None:
    values = torch.randn(items, generator=torch.Generator().manual_seed(items))
    values[::5] = math.nan
    whole = Totals().add({"m": values})
    shares = [Totals() for _ in range(ranks)]
    for number, part in enumerate(values.split(batch)):
        shares[number % ranks] = shares[number % ranks].add({"m": part})
    merged = Totals()
    for share in shares:
        merged = merged.merge(share)
    assert merged.counts == whole.counts
    assert merged.means()["m"] == pytest.approx(whole.means()["m"], abs=1e-12, nan_ok=True)


def test_batch_totals_are_sums_and_counts_of_numbers() -> None:
    total, count = batch_totals({"m": torch.tensor([1.0, math.nan, 3.0])})["m"]
    assert (float(total), count) == (4.0, 2)


def test_d_45_metrics_by_class_leave_out_classes_that_do_not_occur() -> None:
    values = {"minFDE_1": torch.tensor([1.0, 2.0, 3.0])}
    split = by_class(values, torch.tensor([2, 0, 2]), ("vehicle", "pedestrian", "cyclist"))
    assert {tag: value.tolist() for tag, value in split.items()} == {
        "minFDE_1/vehicle": [2.0],
        "minFDE_1/cyclist": [1.0, 3.0],
    }
