"""Made-up drives: pedals and wheel over time, and where a car goes by them. Everything follows from a seed."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lead_trainer.recipes.world.ingest.pose_actions import FULL_PULL, FULL_STOP, STEERING_RATIO, WHEELBASE

STEP_S = 0.01
DRAG = 0.02  # 1/s
FORK_S, FORK_WHEEL, FORK_SPEED = 1.0, 200.0, 6.0  # of twins: straight until then; degrees of the wheel after it; m/s

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Drive:
    """One drive, a row every STEP_S."""

    wheel: Doubles  # degrees, to the left positive
    throttle: Doubles  # [0, 1]
    brake: Doubles  # [0, 1]
    speed: Doubles  # m/s
    x: Doubles  # m
    y: Doubles
    yaw: Doubles  # rad

    def at(self, seconds: float) -> int:
        """Returns the row of a moment."""
        return min(round(seconds / STEP_S), len(self.x) - 1)


def wandering(seed: int, seconds: float) -> Drive:
    """Returns a drive on a bending way, faster and slower."""
    draw = np.random.default_rng([seed, 1])
    times = np.arange(0.0, seconds + STEP_S, STEP_S)
    bend = sum(draw.uniform(20, 70) * np.sin(times * draw.uniform(0.3, 1.2) + draw.uniform(0, 6.28)) for _ in range(2))
    # Brakes never to a stop: of a standing car nothing is predicted.
    push = np.sin(times * draw.uniform(0.4, 0.9) + draw.uniform(0, 6.28)) + draw.uniform(-0.2, 0.5)
    return _driven(np.asarray(bend), np.clip(push, 0, 1), np.clip(-0.15 * push, 0, 1), draw.uniform(4, 9))


def twin(seed: int, seconds: float, side: int) -> Drive:
    """Returns one of two drives that are alike until FORK_S, then turn left (`side` 1) or right (-1)."""
    times = np.arange(0.0, seconds + STEP_S, STEP_S)
    wheel = side * FORK_WHEEL * np.clip((times - FORK_S) / 0.2, 0.0, 1.0)
    hold = np.full(len(times), FORK_SPEED * DRAG / FULL_PULL)  # against the drag
    speed = FORK_SPEED * np.random.default_rng([seed, 2]).uniform(0.8, 1.2)
    return _driven(wheel, hold, np.zeros(len(times)), speed)


def _driven(wheel: Doubles, throttle: Doubles, brake: Doubles, start: float) -> Drive:
    """Integrates a bicycle model."""
    speed = np.zeros(len(wheel))
    speed[0] = start
    for n in range(1, len(wheel)):
        pull = FULL_PULL * throttle[n - 1] - FULL_STOP * brake[n - 1] - DRAG * speed[n - 1]
        speed[n] = max(speed[n - 1] + STEP_S * pull, 0.0)
    yaw = np.cumsum(STEP_S * speed * np.tan(np.radians(wheel / STEERING_RATIO)) / WHEELBASE)
    x, y = np.cumsum(STEP_S * speed * np.cos(yaw)), np.cumsum(STEP_S * speed * np.sin(yaw))
    return Drive(wheel, throttle, brake, speed, x, y, yaw)
