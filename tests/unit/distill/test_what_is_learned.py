"""`lead train` learns: from a tree with cars that stop, every kind of student comes nearer than constant velocity."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from lead_trainer.cli import main
from lead_trainer.commands.evaluate import evaluate_checkpoint
from lead_trainer.example_worlds.distill.tree import write_example_tree
from lead_trainer.recipes.distill.action_stats import SMALLEST_SPREAD, action_counts, action_facts, stats_of
from lead_trainer.recipes.distill.benchmarks.challenges import ONWARD
from lead_trainer.recipes.distill.benchmarks.measure import MODEL
from lead_trainer.recipes.distill.config import MAX_CURVATURE
from lead_trainer.recipes.distill.ingest.actions import fitted_actions
from lead_trainer.recipes.distill.network.unicycle import integrate

CLIPS, SEED = 4, 8  # one of these cars comes to a stop while it turns
DT_S = 0.1


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("learning") / "clips"
    write_example_tree(folder, train=CLIPS, val=1, resolution=32, seed=SEED)
    return folder


def stopping(steps: int = 64, curvature: float | np.ndarray = 0.05) -> np.ndarray:
    """Returns actions (steps, 2) of a car at 6 m/s that turns gently and stands after 40 steps."""
    braking = np.where(np.arange(steps) < 40, -1.5, 0.0)
    return np.stack([braking, np.broadcast_to(curvature, steps)], -1)


def trajectory(actions: np.ndarray, speed: float) -> tuple[np.ndarray, np.ndarray]:
    xy, yaw = integrate(torch.from_numpy(actions).float(), torch.tensor(speed), DT_S)
    return xy.double().numpy(), yaw.double().numpy()


def fitted_curvature(actions: np.ndarray, seed: int) -> np.ndarray:
    """Returns what a fit makes of a drive whose headings are recorded to a ten-thousandth of a radian."""
    xy, yaw = trajectory(actions, 6.0)
    noisy = yaw + np.random.default_rng(seed).normal(0.0, 1e-4, yaw.shape)
    return fitted_actions(xy, noisy, 6.0, DT_S)[:, 1]


@pytest.mark.parametrize("seed", [0, 1])
def test_a_car_that_stands_has_no_curvature_of_its_own(seed: int) -> None:
    curvature = fitted_curvature(stopping(), seed)
    assert np.abs(curvature).max() < 0.1 and np.abs(curvature[50:]).max() < 0.05
    np.testing.assert_allclose(curvature[:30], 0.05, atol=0.01)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("first", [0, 30], ids=["all the way", "in the last second"])
def test_a_car_that_turns_in_while_it_brakes_does_not_go_on_turning_where_it_stands(first: int, seed: int) -> None:
    """A fit that carries the trend on where no distance holds it exceeds the tightest turn of the drive."""
    turning_in = np.clip(np.arange(64) - first, 0, 40 - first) * (0.2 / (40 - first))
    curvature = fitted_curvature(stopping(curvature=turning_in), seed)
    assert np.abs(curvature).max() < 0.2 and np.abs(curvature[50:]).max() < 0.05
    np.testing.assert_allclose(curvature[:30], turning_in[:30], atol=0.02)


def robust_stats(actions: np.ndarray, speed: np.ndarray) -> np.ndarray:
    return stats_of(action_facts(action_counts(actions, speed)), "cache")


def test_steps_of_standing_cars_do_not_widen_the_spread_of_actions() -> None:
    actions = np.tile(stopping(), (10, 1, 1))
    actions[:, 45:, 1] = 300.0  # what a label's noise over no distance may give
    mean, spread = robust_stats(actions, np.full(10, 6.0))
    assert mean[1] == pytest.approx(0.05) and spread[1] == pytest.approx(SMALLEST_SPREAD[1])
    assert spread[0] == pytest.approx(actions[..., 0].std(), rel=0.05)


def test_the_spread_of_any_labels_fits_into_a_students_limits() -> None:
    generator = np.random.default_rng(0)
    actions = generator.standard_t(1.2, (40, 64, 2)) * [2.0, 1.0]
    mean, spread = robust_stats(actions, generator.uniform(0, 15, 40))
    assert abs(mean[1]) + spread[1] <= 1.2 * MAX_CURVATURE
    assert (robust_stats(np.zeros((3, 64, 2)), np.zeros(3))[1] == np.float32(SMALLEST_SPREAD)).all()


def train(clips: Path, folder: Path, *words: str) -> Path:
    """Trains the smallest student by the command and returns its newest weights."""
    quick = ["epochs=40", "every_epochs=0", "tensorboard=false", f"data_root={clips}", f"logdir={folder}"]
    assert main(["train", "recipe=distill", "preset=tiny", *quick, *words]) == 0
    (weights,) = folder.glob("*_latest.pt")
    return weights


@pytest.mark.parametrize(
    "keys",
    [[], ["discrete_actions=true"], ["no_unicycle=true", "lr=3e-3", "epochs=120"]],
    ids=["unicycle", "tokens", "direct"],
)
def test_d_22_a_student_of_clips_beats_constant_velocity_on_what_it_trained_on(
    clips: Path, tmp_path: Path, keys: list[str]
) -> None:
    """The frame is the car's, so that constant velocity is also going straight on."""
    weights = train(clips, tmp_path, *keys)
    found = evaluate_checkpoint(weights, [], "train", None, {}).overall
    model, onward = (found[name].means() for name in (MODEL, ONWARD))
    assert model["minADE_1"] < onward["minADE_1"] and model["minFDE_1"] < onward["minFDE_1"]


def test_d_26_four_clips_with_stopping_cars_are_learnt_by_heart_through_the_command(
    clips: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(clips, tmp_path, "--overfit-tiny", "4", "epochs=100")
    printed = capsys.readouterr()
    lines = [json.loads(line) for line in (printed.out + printed.err).splitlines() if line.startswith("{")]
    losses = [line["loss"] for line in lines if line.get("event") == "epoch done"]
    assert losses[-1] < 0.01 * losses[0]
