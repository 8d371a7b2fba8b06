"""What the front camera sees of a made-up plain: a ground of coloured waves below a skyline that turns with the car."""

import numpy as np
import numpy.typing as npt

CAMERA_M = 1.5  # above the ground
FOCAL, HORIZON = 0.79, 0.47  # of the width; of the height, from above
FAR_M, FADE_M = 120.0, 25.0

Picture = npt.NDArray[np.uint8]
Doubles = npt.NDArray[np.float64]


class Plain:
    """A plain of its own for each seed."""

    def __init__(self, seed: int) -> None:
        draw = np.random.default_rng([seed, 3])
        lengths, angles = draw.uniform(4.0, 16.0, 5), draw.uniform(0.0, 6.28, 5)
        self._waves = 6.28 / lengths * np.stack([np.cos(angles), np.sin(angles)])  # (2, 5) rad/m
        self._phases = draw.uniform(0.0, 6.28, 5)
        self._colours = draw.uniform(-0.22, 0.22, (5, 3))
        self._ground, self._sky = draw.uniform(0.3, 0.6, 3), draw.uniform(0.5, 0.8, 3)
        self._hills = np.arange(2, 8)
        self._hill_phases, self._hill_colours = draw.uniform(0.0, 6.28, 6), draw.uniform(-0.16, 0.16, (6, 3))

    def picture(self, x: float, y: float, yaw: float, size: tuple[int, int]) -> Picture:
        """Returns the picture (height, width, 3) RGB from a place (m) and a heading (rad)."""
        height, width = size
        rows, columns = np.mgrid[0:height, 0:width] + 0.5
        right = (columns - 0.5 * width) / (FOCAL * width)
        down = (rows - HORIZON * height) / (FOCAL * width)
        depth = np.minimum(CAMERA_M / np.maximum(down, 1e-6), FAR_M)
        place_x = x + depth * (np.cos(yaw) + right * np.sin(yaw))
        place_y = y + depth * (np.sin(yaw) - right * np.cos(yaw))
        ground = self._of_ground(place_x, place_y, np.exp(-depth / FADE_M))
        sky = self._of_sky(yaw - np.arctan(right), np.clip(1.0 + 4.0 * down, 0.0, 1.0))
        shown = np.where((down > 0)[..., None], ground, sky)
        return np.asarray(np.clip(255.0 * shown, 0, 255).astype(np.uint8))

    def _of_ground(self, x: Doubles, y: Doubles, near: Doubles) -> Doubles:
        waves = np.sin(x[..., None] * self._waves[0] + y[..., None] * self._waves[1] + self._phases)
        return np.asarray(self._ground + near[..., None] * (waves @ self._colours))

    def _of_sky(self, azimuth: Doubles, low: Doubles) -> Doubles:
        hills = np.sin(azimuth[..., None] * self._hills + self._hill_phases)
        return np.asarray(self._sky + low[..., None] * (hills @ self._hill_colours))
