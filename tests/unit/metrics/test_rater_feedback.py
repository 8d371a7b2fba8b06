"""Waymo's rater feedback score, by cases whose score its definition gives without a computer."""

import math

import pytest
import torch
from torch import Tensor

from lead_trainer.metrics.rater_feedback import rater_feedback_score
from lead_trainer.recipes.lead.prepare_waymo import RATED_STEPS

FAST, SLOW = 11.0, 1.4  # m/s: full and half rectangles
SECONDS = torch.arange(1, RATED_STEPS + 1) / 4
STRAIGHT = torch.stack((2 * SECONDS, torch.zeros(RATED_STEPS)), dim=-1)  # 2 m/s along x
LEFT = STRAIGHT.flip(-1)  # the same along y


def score(predicted: Tensor, *rated: tuple[Tensor, float], speed: float = FAST) -> float:
    paths = torch.stack([path for path, _ in rated])[None]
    ratings = torch.tensor([[rating for _, rating in rated]])
    return rater_feedback_score(predicted[None], paths, ratings, torch.tensor([speed])).item()


def moved(at_3_s: tuple[float, float], at_5_s: tuple[float, float], path: Tensor = STRAIGHT) -> Tensor:
    path = path.clone()
    path[11] += torch.tensor(at_3_s)
    path[19] += torch.tensor(at_5_s)
    return path


@pytest.mark.parametrize(
    ("at_3_s", "at_5_s", "speed", "expected"),
    [
        ((3.9, 0.9), (7.1, -1.7), FAST, 9.0),  # inside 1 x 4 and 1.8 x 7.2 m
        ((0.0, 0.0), (0.0, 3.6), FAST, (9 + 0.9) / 2),  # twice as far as allowed at 5 s
        ((-6.0, 0.0), (0.0, 0.0), FAST, (9 + 9 * 10**-0.5) / 2),  # one and a half times at 3 s
        ((0.0, 1.5), (0.0, 2.7), FAST, 4.0),  # 9 / sqrt(10) at both, raised to the least
        ((0.0, 0.9), (0.0, 0.0), SLOW, (9 + 9 * 10**-0.8) / 2),  # half the size: 0.9 of 0.5 m
        ((0.0, 0.9), (0.0, 0.0), 0.0, (9 + 9 * 10**-0.8) / 2),  # no less than half
        ((0.0, 0.75), (0.0, 1.35), 6.2, 9.0),  # three quarters of the size in the middle
        ((0.0, 50.0), (0.0, 50.0), FAST, 4.0),
    ],
)
def test_a_rating_fades_with_the_distance_in_rectangles(
    at_3_s: tuple[float, float], at_5_s: tuple[float, float], speed: float, expected: float
) -> None:
    assert score(moved(at_3_s, at_5_s), (STRAIGHT, 9.0), speed=speed) == pytest.approx(expected, abs=1e-6)


def test_only_3_and_5_seconds_count() -> None:
    elsewhere = STRAIGHT.clone()
    elsewhere[[5, 15]] += 100.0
    assert score(elsewhere, (STRAIGHT, 7.0)) == 7.0


def test_rectangles_lie_along_the_rated_heading() -> None:
    assert score(moved((0.0, 3.9), (0.0, 7.1), LEFT), (LEFT, 8.0)) == 8.0
    assert score(moved((3.9, 0.0), (7.1, 0.0), LEFT), (LEFT, 8.0)) == 4.0


def test_who_stands_keeps_the_heading_and_begins_straight_ahead() -> None:
    turned = torch.cat((LEFT[:8], LEFT[7:8].expand(RATED_STEPS - 8, 2)))
    assert score(moved((0.0, 3.9), (0.0, 7.1), turned), (turned, 8.0)) == 8.0
    assert score(moved((3.9, 0.0), (7.1, 0.0), turned), (turned, 8.0)) == 4.0
    still = torch.zeros(RATED_STEPS, 2)
    assert score(moved((3.9, 0.0), (7.1, 0.0), still), (still, 8.0)) == 8.0


def test_the_best_rated_trajectory_counts_at_either_time() -> None:
    assert score(STRAIGHT, (STRAIGHT, 6.0), (LEFT, 10.0)) == 6.0
    assert score(STRAIGHT, (STRAIGHT, 6.0), (moved((0.5, 0.0), (0.0, 0.0)), 10.0)) == 10.0
    at_3_s_only = moved((0.0, 0.0), (100.0, 0.0))
    assert score(STRAIGHT, (STRAIGHT, 6.0), (at_3_s_only, 10.0)) == pytest.approx((10 + 6) / 2)


def test_a_low_rating_is_earned_inside_and_not_outside() -> None:
    assert score(STRAIGHT, (STRAIGHT, 2.0)) == 2.0
    assert score(LEFT, (STRAIGHT, 2.0)) == 4.0


def test_a_negative_rating_marks_no_trajectory() -> None:
    assert score(STRAIGHT, (STRAIGHT, -1.0), (LEFT, 9.0)) == 4.0
    assert math.isnan(score(STRAIGHT, (STRAIGHT, -1.0)))
