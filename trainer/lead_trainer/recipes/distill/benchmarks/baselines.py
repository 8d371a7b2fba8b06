"""What a forecast must beat: simple kinematics carried on from the present state, without any learning.

Shapes: B agents, T steps; the state is in the agent's frame, where it stands at the origin and heads along x. The four
models and their oracle are those of nuscenes-devkit 1.2.0 (`prediction/models/physics.py`): the models that turn take a
step with the heading and the speed before it (explicit Euler).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lead_trainer.metrics.forecasting import Forecast


@dataclass(frozen=True)
class Kinematics:
    """The present state of B agents, each (B,)."""

    speed: Tensor  # m/s along the heading
    acceleration: Tensor  # m/s² along the heading
    yaw_rate: Tensor  # rad/s
    velocity: Tensor  # (B, 2) m/s, which need not lie along the heading

    @classmethod
    def of(cls, state_B5: Tensor) -> "Kinematics":
        """Reads the rows of a batch's `kinematics`: speed, acceleration, yaw rate, velocity x and y."""
        speed, acceleration, yaw_rate = state_B5.double()[:, :3].unbind(1)
        return cls(speed, acceleration, yaw_rate, state_B5.double()[:, 3:])


Baseline = Callable[[Kinematics, int, float], Tensor]  # state, steps, seconds a step -> (B, T, 2)


def constant_velocity(state: Kinematics, steps: int, dt_s: float) -> Tensor:
    """Goes on with the velocity as it is, wherever the heading points."""
    return _times(state, steps, dt_s)[..., None] * state.velocity[:, None]


def constant_velocity_heading(state: Kinematics, steps: int, dt_s: float) -> Tensor:
    """Goes on along the heading with the present speed."""
    return _ahead(_times(state, steps, dt_s) * state.speed[:, None])


def constant_acceleration_heading(state: Kinematics, steps: int, dt_s: float) -> Tensor:
    """Goes on along the heading with the present acceleration; it may come to a halt and go backwards."""
    times = _times(state, steps, dt_s)
    return _ahead(times * state.speed[:, None] + 0.5 * times**2 * state.acceleration[:, None])


def constant_speed_yaw_rate(state: Kinematics, steps: int, dt_s: float) -> Tensor:
    """Goes on with the present speed and yaw rate."""
    return _turning(state, torch.zeros_like(state.acceleration), steps, dt_s)


def constant_acceleration_yaw_rate(state: Kinematics, steps: int, dt_s: float) -> Tensor:
    """Goes on with the present acceleration and yaw rate."""
    return _turning(state, state.acceleration, steps, dt_s)


PHYSICS: tuple[Baseline, ...] = (
    constant_acceleration_heading,
    constant_acceleration_yaw_rate,
    constant_speed_yaw_rate,
    constant_velocity_heading,
)


def physics_oracle(state: Kinematics, truth_BT2: Tensor, dt_s: float) -> Tensor:
    """Returns for each agent the model of PHYSICS nearest to the truth, (B, T, 2): a bound, for it knows the truth."""
    paths = torch.stack([model(state, truth_BT2.shape[1], dt_s) for model in PHYSICS], dim=1)
    error = (paths - truth_BT2.double()[:, None]).square().nan_to_num(nan=0.0).sum(dim=(-2, -1))
    best = error.argmin(dim=1)
    return paths[torch.arange(len(best), device=best.device), best]


def one_mode(path_BT2: Tensor) -> Forecast:
    """Returns a forecast that is certain of its one mode."""
    return Forecast(path_BT2[:, None], torch.ones(len(path_BT2), 1, dtype=path_BT2.dtype, device=path_BT2.device))


def _times(state: Kinematics, steps: int, dt_s: float) -> Tensor:
    ahead = torch.arange(1, steps + 1, dtype=state.speed.dtype, device=state.speed.device) * dt_s
    return ahead.expand(len(state.speed), steps)


def _ahead(distance_BT: Tensor) -> Tensor:
    return torch.stack([distance_BT, torch.zeros_like(distance_BT)], dim=-1)


def _turning(state: Kinematics, acceleration: Tensor, steps: int, dt_s: float) -> Tensor:
    before = _times(state, steps, dt_s) - dt_s
    distance = (state.speed[:, None] + before * acceleration[:, None]) * dt_s
    yaw = before * state.yaw_rate[:, None]
    return torch.cumsum(torch.stack([distance * torch.cos(yaw), distance * torch.sin(yaw)], dim=-1), dim=1)
