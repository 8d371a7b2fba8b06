"""Draws the three cameras of LEAD's rig: colours, semantic classes and depth from one set of projected polygons.

Called by `route_files.py` twice a frame (normal and perturbated rig). One id image decides all three outputs, so that
they agree.
"""

from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from lead_trainer.example_worlds.lead.geometry import FloatArray, Pose2, rotation2
from lead_trainer.example_worlds.lead.ground import ByteArray, Ground
from lead_trainer.example_worlds.lead.scene import Polygons
from lead_trainer.example_worlds.lead.weather import SKY_HEIGHT, SKY_TOP_RAD, SKY_WIDTH, Weather, shade

SIDE = 384
FOCAL = SIDE / 2 / np.tan(np.deg2rad(30.0))
CAMERA_HEIGHT_M = 2.25
MOUNTS = (((0.1, -0.35), np.deg2rad(-54.5)), ((0.35, 0.0), 0.0), ((0.1, 0.35), np.deg2rad(54.5)))
HORIZON = SIDE // 2
SIGHT_M = 110.0
_NEAR_M = 0.3
_FAR_ROWS = int(FOCAL * CAMERA_HEIGHT_M / 20.0)
"""Rows below the horizon that show more than 20 m and take the smoothed ground picture."""
_SUBPIXEL_BITS = 4

FloatImage = npt.NDArray[np.float32]


@dataclass(frozen=True)
class View:
    """One shot of the rig: BGR 384x1152x3, classes 384x1152, depth in metres 384x1152, pixels per actor id."""

    bgr: ByteArray
    semantic: ByteArray
    depth_m: FloatImage
    visible_pixels: dict[int, int]


def project(points: FloatArray, camera: int) -> tuple[FloatArray, FloatArray]:
    """Returns pixel positions (N, 2) in one camera's picture and depths (N,) of points in the rig's frame."""
    (x, y), yaw = MOUNTS[camera]
    flat = (points[:, :2] - np.array([x, y])) @ rotation2(yaw)
    depth = flat[:, 0]
    column = SIDE / 2 + FOCAL * flat[:, 1] / depth
    row = SIDE / 2 - FOCAL * (points[:, 2] - CAMERA_HEIGHT_M) / depth
    return np.stack([column, row], axis=1), depth


class Rig:
    """The three cameras over one route's ground and sky; keeps what does not change between frames."""

    def __init__(self, ground: Ground, sky: ByteArray, weather: Weather) -> None:
        self._ground, self._sky, self._weather = ground, sky, weather
        columns = np.arange(SIDE, dtype=np.float64) + 0.5 - SIDE / 2
        rows = np.arange(HORIZON, dtype=np.float64) + 0.5
        depth = FOCAL * CAMERA_HEIGHT_M / rows
        hits, azimuths, elevations = [], [], []
        for (x, y), yaw in MOUNTS:
            forward = np.broadcast_to(depth[:, None], (HORIZON, SIDE))
            right = depth[:, None] * columns[None] / FOCAL
            hits.append(np.stack([forward, right], axis=-1) @ rotation2(yaw).T + np.array([x, y]))
            azimuths.append(np.broadcast_to(yaw + np.arctan(columns / FOCAL), (HORIZON, SIDE)))
            elevations.append(np.arctan(rows[::-1, None] / np.hypot(FOCAL, columns)[None]))
        self._hit = np.concatenate(hits, axis=1).astype(np.float32)
        self._azimuth = np.concatenate(azimuths, axis=1)
        elevation = np.concatenate(elevations, axis=1)
        self._sky_row = ((1 - np.clip(elevation / SKY_TOP_RAD, 0, 1)) * (SKY_HEIGHT - 1)).astype(np.float32)
        self._ground_depth = np.broadcast_to(depth[:, None], (HORIZON, 3 * SIDE)).astype(np.float32)
        keep = np.exp(-depth / weather.haze_m).astype(np.float32)[:, None, None]
        haze = np.array(weather.horizon[::-1], np.float32)
        self._keep = np.ascontiguousarray(
            np.broadcast_to(keep, (HORIZON, 3 * SIDE, 3)) * np.array(weather.tint[::-1], np.float32)
        )
        self._haze = np.ascontiguousarray(np.broadcast_to((1 - keep) * haze, (HORIZON, 3 * SIDE, 3)))
        self._grain = np.random.default_rng(7).integers(-4, 5, (SIDE, 3 * SIDE, 1), dtype=np.int8)

    def shoot(self, polygons: Polygons, pose: Pose2, shadows: list[FloatArray]) -> View:
        """Returns what the rig at `pose` sees; `shadows` are ground polygons (N, 2) in the world."""
        bgr, semantic, depth = self._background(pose)
        seen: dict[int, int] = {}
        near = np.linalg.norm(polygons.centre - pose.xy, axis=1) < SIGHT_M
        for camera in range(3):
            part = slice(camera * SIDE, (camera + 1) * SIDE)
            self._cast_shadows(bgr[:, part], pose, camera, shadows)
            view = _Projection(polygons, near, pose, camera)
            self._compose(view, polygons, bgr[:, part], semantic[:, part], depth[:, part], seen)
        bgr = np.clip(bgr.astype(np.int16) + self._grain, 0, 255).astype(np.uint8)
        return View(bgr, semantic, depth, seen)

    def _background(self, pose: Pose2) -> tuple[ByteArray, ByteArray, FloatImage]:
        ground = self._ground
        cos, sin = np.float32(np.cos(pose.yaw)), np.float32(np.sin(pose.yaw))
        base = ((pose.xy - ground.origin) * ground.pixels_per_m).astype(np.float32)
        scale = np.float32(ground.pixels_per_m)
        x = (cos * self._hit[..., 0] - sin * self._hit[..., 1]) * scale + (base[0] - np.float32(0.5))
        y = (sin * self._hit[..., 0] + cos * self._hit[..., 1]) * scale + (base[1] - np.float32(0.5))
        grass = tuple(int(v) for v in ground.colour[0, 0])
        colour = np.empty((HORIZON, 3 * SIDE, 3), np.uint8)
        far, half = np.float32(ground.far_factor), np.float32(0.5)
        top, rest = slice(None, _FAR_ROWS), slice(_FAR_ROWS, None)
        colour[top] = _sampled(ground.far_colour, (x[top] + half) / far - half, (y[top] + half) / far - half, grass)
        colour[rest] = _sampled(ground.colour, x[rest], y[rest], grass)
        lit = cv2.multiply(colour, self._keep, dtype=cv2.CV_32F)
        sky_column = ((self._azimuth + pose.yaw) * (SKY_WIDTH / (2 * np.pi)) % SKY_WIDTH).astype(np.float32)
        sky = cv2.remap(self._sky, sky_column, self._sky_row, cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP)
        bgr = np.concatenate([sky, cv2.add(lit, self._haze, dtype=cv2.CV_8U)])
        road = cv2.remap(ground.semantic, x, y, cv2.INTER_NEAREST)
        semantic = np.concatenate([np.zeros_like(road), road])
        depth = np.concatenate([np.full((HORIZON, 3 * SIDE), 1000.0, np.float32), self._ground_depth])
        return bgr, semantic, depth

    def _cast_shadows(self, bgr: ByteArray, pose: Pose2, camera: int, shadows: list[FloatArray]) -> None:
        mask = np.zeros((SIDE, SIDE), np.uint8)
        for shadow in shadows:
            points = np.concatenate([pose.to_local(shadow), np.zeros((len(shadow), 1))], axis=1)
            pixels, depth = project(points, camera)
            if depth.min() > 1.0 and np.abs(pixels).max() < 4000:
                cv2.fillConvexPoly(mask, np.round(pixels * 16 - 8).astype(np.int32), 1, shift=_SUBPIXEL_BITS)
        dark = mask > 0
        bgr[dark] = (bgr[dark] * self._weather.shadow).astype(np.uint8)

    def _compose(
        self,
        view: "_Projection",
        polygons: Polygons,
        bgr: ByteArray,
        semantic: ByteArray,
        depth: FloatImage,
        seen: dict[int, int],
    ) -> None:
        """Writes one camera's faces over its background, the nearer layer first."""
        drawn = view.faces
        if len(drawn) == 0:
            return
        houses, things = view.id_image(polygons.behind[drawn]), view.id_image(~polygons.behind[drawn])
        rows, columns = np.nonzero((houses > 0) | (things > 0))
        house, thing = houses[rows, columns], things[rows, columns]
        a = (columns + 0.5 - SIDE / 2) / FOCAL
        b = (SIDE / 2 - rows - 0.5) / FOCAL
        house_inverse, thing_inverse = view.inverse_depth(house, a, b), view.inverse_depth(thing, a, b)
        face = np.where(thing_inverse >= house_inverse, thing, house)
        distance = 1.0 / np.maximum(np.maximum(thing_inverse, house_inverse), 1e-3)
        index = drawn[face - 1]
        lit = shade(self._weather, polygons.colour[drawn], polygons.normal[drawn], polygons.glows[drawn])[face - 1]
        haze = 1.0 - np.exp(-distance / self._weather.haze_m)[:, None]
        bgr[rows, columns] = (lit + (np.array(self._weather.horizon) - lit) * haze)[:, ::-1].astype(np.uint8)
        semantic[rows, columns] = polygons.semantic[index]
        depth[rows, columns] = distance
        for owner, pixels in zip(*np.unique(polygons.owner[index], return_counts=True), strict=True):
            seen[int(owner)] = seen.get(int(owner), 0) + int(pixels)


class _Projection:
    """The faces that one camera can see, far ones first, with their planes."""

    def __init__(self, polygons: Polygons, near: npt.NDArray[np.bool_], pose: Pose2, camera: int) -> None:
        (x, y), yaw = MOUNTS[camera]
        eye = pose.to_world(np.array([x, y]))
        turn = rotation2(pose.yaw + yaw)
        ahead = (polygons.centre - eye) @ turn
        inside = near & (np.abs(ahead[:, 1]) < np.tan(np.deg2rad(30.0)) * np.maximum(ahead[:, 0], 0) + 11.0)
        inside &= ahead[:, 0] > -9.0
        candidates = np.flatnonzero(inside)
        anchor = polygons.vertices[polygons.first[candidates]] - np.array([eye[0], eye[1], CAMERA_HEIGHT_M])
        distance_to_plane = np.sum(polygons.normal[candidates] * anchor, axis=1)
        candidates, plane = candidates[distance_to_plane < -1e-6], distance_to_plane[distance_to_plane < -1e-6]
        order = np.argsort(-np.sum(ahead[candidates] ** 2, axis=1), kind="stable")
        self.faces = candidates[order]
        normal = polygons.normal[self.faces]
        flat = normal[:, :2] @ turn
        self._plane = np.stack([flat[:, 1], normal[:, 2], flat[:, 0]], axis=1) / plane[order][:, None]
        self._plane = np.concatenate([np.zeros((1, 3)), self._plane])
        self._outlines(polygons, eye, turn)

    def _outlines(self, polygons: Polygons, eye: FloatArray, turn: FloatArray) -> None:
        count, first = polygons.count[self.faces], polygons.first[self.faces]
        start = np.cumsum(count) - count
        index = np.repeat(first - start, count) + np.arange(int(count.sum()))
        points = polygons.vertices[index]
        flat = (points[:, :2] - eye) @ turn
        local = np.stack([flat[:, 1], points[:, 2] - CAMERA_HEIGHT_M, flat[:, 0]], axis=1)
        self._local, self._bounds = local, np.append(start, len(local))
        if len(local) == 0:
            return
        self._nearest = np.minimum.reduceat(local[:, 2], start)
        self._pixels = _pixels(np.where(local[:, 2:] < _NEAR_M, np.nan, local))
        farthest = np.maximum.reduceat(local[:, 2], start)
        left = np.minimum.reduceat(self._pixels[:, 0], start)
        right = np.maximum.reduceat(self._pixels[:, 0], start)
        limit = SIDE << _SUBPIXEL_BITS
        self._visible = (farthest > _NEAR_M) & ((self._nearest < _NEAR_M) | ((right >= -16) & (left <= limit)))

    def id_image(self, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
        """Returns a picture of 1-based positions in `faces`, 0 where none of the chosen ones is."""
        image = np.zeros((SIDE, SIDE), np.int32)
        for number in np.flatnonzero(self._visible & chosen):
            part = slice(self._bounds[number], self._bounds[number + 1])
            pixels = self._pixels[part] if self._nearest[number] >= _NEAR_M else _pixels(_clipped(self._local[part]))
            if len(pixels) >= 3:
                cv2.fillConvexPoly(image, pixels, int(number) + 1, shift=_SUBPIXEL_BITS)
        return image

    def inverse_depth(self, face: npt.NDArray[np.int32], a: FloatArray, b: FloatArray) -> FloatArray:
        """Returns 1/depth of faces (1-based, 0 gives 0) where a view ray (a right, b up, 1 forward) meets them."""
        plane = self._plane[face]
        result: FloatArray = plane[:, 0] * a + plane[:, 1] * b + plane[:, 2]
        return np.where(face > 0, np.clip(result, 1e-3, 1 / _NEAR_M), 0.0)


def _sampled(picture: ByteArray, x: FloatImage, y: FloatImage, outside: tuple[int, ...]) -> ByteArray:
    sampled = cv2.remap(picture, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT, borderValue=outside)
    return np.asarray(sampled, np.uint8)


def _pixels(local: FloatArray) -> npt.NDArray[np.int32]:
    """Fixed-point pixel centres of camera points (right, up, forward); NaN becomes a number that is never drawn."""
    scale = FOCAL / local[:, 2]
    pixels = np.stack([SIDE / 2 + local[:, 0] * scale, SIDE / 2 - local[:, 1] * scale], axis=1) - 0.5
    return np.round(np.nan_to_num(pixels, nan=0.0) * (1 << _SUBPIXEL_BITS)).astype(np.int32)


def _clipped(polygon: FloatArray) -> FloatArray:
    """Returns the part of a polygon in front of the camera."""
    kept = []
    for here, there in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
        inside, next_inside = here[2] >= _NEAR_M, there[2] >= _NEAR_M
        if inside:
            kept.append(here)
        if inside != next_inside:
            share = (_NEAR_M - here[2]) / (there[2] - here[2])
            kept.append(here + share * (there - here))
    return np.array(kept).reshape(-1, 3)
