"""The parts of a sample behave at their edges: short routes, unknown scenarios, crowded grids, mixed batches."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lead_testing import shared_dir
from lead_testing.logged import Logged
from lead_trainer.errors import BadData
from lead_trainer.recipes.lead.augment import OPERATIONS, augmented, elastic
from lead_trainer.recipes.lead.dataset_collate import collate
from lead_trainer.recipes.lead.dataset_metas import scenario_id
from lead_trainer.recipes.lead.targets.center_net import angle_class, paint_peak
from lead_trainer.recipes.lead.targets.label_classes import SCENARIO_TYPES
from lead_trainer.recipes.lead.targets.planner import merge_repeated, one_hot_command, resample_path
from lead_trainer.recipes.lead.targets.view import View, wrap_angle

ANGLES = st.floats(-20, 20)
METRES = st.floats(-60, 60)


@given(METRES, METRES, st.floats(-1, 1), st.floats(-15, 15))
def test_a_view_moves_points_and_headings_together(x: float, y: float, shift: float, yaw: float) -> None:
    view = View(shift, yaw)
    here, ahead = view.points(np.array([[x, y], [x + 1, y]]))
    direction = ahead - here
    assert abs(wrap_angle(float(np.arctan2(direction[1], direction[0])) - view.angle(0.0))) < 1e-6


@given(ANGLES, st.integers(2, 24))
def test_an_angle_comes_back_from_class_and_residual(angle: float, bins: int) -> None:
    index, residual = angle_class(angle, bins)
    assert 0 <= index < bins
    assert abs(residual) <= np.pi / bins + 1e-9
    assert abs(wrap_angle(index * 2 * np.pi / bins + residual - angle)) < 1e-6


@pytest.mark.parametrize("angle", [-0.26179938779914963, -6.544984694978736])
def test_an_angle_just_before_the_first_bin_is_in_the_last(angle: float) -> None:
    index, residual = angle_class(angle, 12)
    assert index == 11 and residual == pytest.approx(np.pi / 12)


def test_a_straight_route_is_resampled_from_two_and_a_half_metres_on() -> None:
    path = np.stack([np.arange(20) + 2.5, np.zeros(20)], axis=1)
    np.testing.assert_allclose(resample_path(path, 10), path[:10])


@settings(max_examples=100)
@given(st.lists(st.tuples(METRES, METRES), min_size=1, max_size=25))
def test_no_route_is_too_short_or_too_bent_to_resample(points: list[tuple[float, float]]) -> None:
    route = resample_path(np.array(points), 20)
    assert route.shape == (20, 2) and np.isfinite(route).all()


def test_repeated_target_points_are_merged_unless_there_are_only_two() -> None:
    points = np.array([[0.0, 0.0], [0.0, 0.0], [5.0, 0.0]])
    merged, commands = merge_repeated(points, [1, 2, 3])
    assert merged.tolist() == [[0, 0], [5, 0]] and commands == [1, 3]
    assert len(merge_repeated(points[:2], [1, 2])[0]) == 2


@pytest.mark.parametrize(("command", "place"), [(-1, 3), (0, 3), (1, 0), (4, 3), (6, 5), (7, 3)])
def test_commands_out_of_range_mean_lane_following(command: int, place: int) -> None:
    assert one_hot_command(command).argmax() == place


def test_an_unknown_scenario_is_numbered_like_none_with_one_warning(logged: Logged) -> None:
    scenario_id.cache_clear()  # another test may have asked for it
    assert [scenario_id("MyScenario"), scenario_id("MyScenario")] == [len(SCENARIO_TYPES) - 1] * 2
    assert str(logged).count("MyScenario") == 1


@given(st.integers(0, 11), st.integers(0, 9), st.integers(2, 6))
def test_a_peak_is_one_at_its_cell_and_stays_in_the_grid(column: int, line: int, radius: int) -> None:
    plane = np.zeros((10, 12), np.float32)
    paint_peak(plane, column, line, radius)
    assert plane[line, column] == 1.0 == plane.max() and (plane == 1.0).sum() == 1


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_every_colour_operation_keeps_shape_and_changes_little(operation: object) -> None:
    picture = np.random.default_rng(0).integers(60, 200, (96, 288, 3), dtype=np.uint8)
    changed = operation(picture, np.random.Generator(np.random.Philox(key=5)))  # type: ignore[operator]
    assert changed.shape == picture.shape and changed.dtype == np.uint8
    assert 0 < np.abs(changed.astype(int) - picture).mean() < 40


def test_colours_depend_on_the_stream_alone() -> None:
    picture = np.random.default_rng(0).integers(0, 255, (96, 288, 3), dtype=np.uint8)
    first, again, other = (augmented(picture, stream, 0.9) for stream in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert np.array_equal(augmented(picture, 1, 0.0), picture)


def test_elastic_moves_cubically_and_brings_in_black_as_imgaug_does() -> None:
    white = np.full((24, 32, 3), 255, np.uint8)
    moved = elastic(white, np.random.default_rng(0))
    assert (moved[3:-3, 3:-3] == 255).all() and (moved == 0).any()
    halves = np.repeat(np.where(np.arange(32) < 16, 100, 150), 3).reshape(1, 32, 3).repeat(24, axis=0).astype(np.uint8)
    inside = elastic(halves, np.random.default_rng(0))[3:-3, 3:-3]
    assert inside.min() < 100 and inside.max() > 150  # beyond an edge's sides, which linear interpolation never is


def test_a_batch_keeps_leads_types_and_fills_what_a_sample_lacks() -> None:
    case = json.loads((shared_dir() / "golden/lead_data/sampling.json").read_text())["collate_small_cases"][0]
    batch = collate([{"a": np.ones(2), "s": "x", "f": 1.5, "b": True}, {"a": None, "i": 3}])
    found = {key: value.tolist() if isinstance(value, torch.Tensor) else value for key, value in batch.items()}
    assert found == case["out"]
    assert batch["f"].dtype == torch.float64


def test_a_key_that_cannot_be_stacked_is_named() -> None:
    with pytest.raises(BadData, match=r"key a has shapes \(2,\), \(3,\)"):
        collate([{"a": np.ones(2)}, {"a": np.ones(3)}])
