"""Light and air of an example route: sun, sky picture, haze.

Called by `camera.py`. Three weathers, named like CARLA's presets.
"""

from dataclasses import dataclass

import cv2
import numpy as np

from lead_trainer.example_worlds.lead.geometry import FloatArray
from lead_trainer.example_worlds.lead.ground import ByteArray


@dataclass(frozen=True)
class Weather:
    """`sun` points to the sun; colours are RGB."""

    sun: tuple[float, float, float]
    ambient: float
    direct: float
    tint: tuple[float, float, float]
    zenith: tuple[int, int, int]
    horizon: tuple[int, int, int]
    cloud_cover: float
    shadow: float
    haze_m: float


WEATHERS = {
    "ClearNoon": Weather(
        (0.35, -0.45, 0.82), 0.62, 0.5, (1.0, 1.0, 0.97), (72, 128, 206), (186, 210, 232), 0.45, 0.55, 260
    ),
    "CloudyNoon": Weather(
        (0.1, 0.2, 0.97), 0.74, 0.2, (0.93, 0.96, 1.0), (128, 142, 160), (192, 198, 206), 0.95, 0.85, 170
    ),
    "ClearSunset": Weather(
        (0.8, 0.5, 0.34), 0.6, 0.55, (1.06, 0.95, 0.8), (78, 104, 168), (244, 196, 140), 0.5, 0.6, 230
    ),
}

SKY_WIDTH, SKY_HEIGHT = 2048, 256
SKY_TOP_RAD = np.deg2rad(40.0)


def shade(weather: Weather, colour: FloatArray, normal: FloatArray, glows: np.ndarray) -> FloatArray:
    """Returns the lit RGB colours (N, 3) of faces."""
    sun = np.array(weather.sun) / np.linalg.norm(weather.sun)
    light = weather.ambient + weather.direct * np.maximum(normal @ sun, 0.0) + 0.06 * normal[:, 2]
    light = np.where(glows, 1.1, light)
    tint = np.where(glows[:, None], 1.0, np.array(weather.tint))
    return np.clip(colour * light[:, None] * tint, 0, 255)


def paint_sky(rng: np.random.Generator, weather: Weather) -> ByteArray:
    """Returns a panorama (256, 2048, 3) BGR: columns are azimuth, rows run from the top down to the horizon."""
    height = np.linspace(1.0, 0.0, SKY_HEIGHT, dtype=np.float32)[:, None, None]
    top, low = np.array(weather.zenith, np.float32), np.array(weather.horizon, np.float32)
    sky = low + (top - low) * np.sqrt(height) + np.zeros((SKY_HEIGHT, SKY_WIDTH, 3), np.float32)
    cloud = np.zeros((SKY_HEIGHT, SKY_WIDTH), np.float32)
    for rows, columns, weight in ((5, 14, 0.55), (11, 34, 0.3), (24, 80, 0.15)):
        noise = rng.random((rows, columns), dtype=np.float32)
        noise[:, -1] = noise[:, 0]
        cloud += weight * cv2.resize(noise, (SKY_WIDTH, SKY_HEIGHT), interpolation=cv2.INTER_CUBIC)
    cover = np.clip((cloud - 0.75 + 0.5 * weather.cloud_cover) * 3.0, 0.0, 0.85)[..., None]
    white = np.array([240.0, 240.0, 242.0], np.float32) * np.array(weather.tint, np.float32)
    sky += (white - sky) * cover
    turn = np.linspace(0, 2 * np.pi, SKY_WIDTH, endpoint=False)
    for distance, base in ((0, 0.075), (1, 0.05)):
        phase = rng.uniform(0, 2 * np.pi, 5)
        ridge = base + 0.016 * sum(np.sin(k * turn + phase[n]) / (1 + n * 0.6) for n, k in enumerate((3, 5, 9, 17, 31)))
        mask = np.linspace(1.0, 0.0, SKY_HEIGHT)[:, None] < ridge[None]
        hill = np.array([(118, 140, 150), (92, 116, 96)][distance], np.float32)
        sky[mask] = hill * 0.72 + low * 0.28
    return np.asarray(np.clip(sky[..., ::-1], 0, 255), np.uint8)
