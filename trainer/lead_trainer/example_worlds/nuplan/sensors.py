"""What cameras and lidar of the made-up town's car see: a coloured ground, boxes upon it, and their returns."""

import cv2
import numpy as np
import numpy.typing as npt
import simplejpeg

from lead_trainer.example_worlds.nuplan.town import Town
from lead_trainer.recipes.nuplan.geometry import Doubles, inverse, moved, transform, turned
from lead_trainer.recipes.nuplan.ingest.log_tables import Lens, Mount
from lead_trainer.recipes.nuplan.lenses import projected

RINGS, DIRECTIONS, FAR_M = 36, 300, 60.0  # rings of the lidar, directions of each
_HORIZON, _NEAR_M, _MISSED = (186, 206, 226), 0.4, 1e6
# Channel: metres ahead, metres to the left, direction (degrees to the left), focal length as a share of the width.
_CAMERAS = {
    "CAM_F0": (1.9, 0.0, 0.0, 0.8), "CAM_L0": (1.6, 0.4, 55.0, 0.62), "CAM_R0": (1.6, -0.4, -55.0, 0.62),
    "CAM_L1": (1.2, 0.5, 108.0, 0.62), "CAM_R1": (1.2, -0.5, -108.0, 0.62), "CAM_L2": (0.9, 0.4, 143.0, 0.62),
    "CAM_R2": (0.9, -0.4, -143.0, 0.62), "CAM_B0": (0.3, 0.0, 180.0, 0.8),
}  # fmt: skip
_EDGES = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (0.0, 1.0)])
DISTORTION = (-0.3, 0.09, 0.0004, -0.0003, -0.01)
LIDAR = Mount(np.array([0.95, 0.03, 1.82]), np.array([np.cos(0.005), 0.0, 0.0, np.sin(0.005)]))


def lenses_of(size: tuple[int, int]) -> dict[str, Lens]:
    """Returns the eight cameras, for pictures of (height, width)."""
    found = {}
    for number, (channel, (ahead, left, degrees, focal)) in enumerate(_CAMERAS.items()):
        half = np.radians(degrees) / 2
        # A camera that looks ahead: its x to the right, y down, z ahead; then turned around the vehicle's z.
        ahead_looking = np.array([0.5, -0.5, 0.5, -0.5])
        rotation = _times(np.array([np.cos(half), 0.0, 0.0, np.sin(half)]), ahead_looking)
        right, down = 0.01 * size[1] * np.sin(number + 1), 0.01 * size[1] * np.cos(number)  # of the picture's middle
        intrinsic = np.diag([focal * size[1], focal * size[1], 1.0])
        intrinsic[:2, 2] = size[1] / 2 - 0.5 + right, size[0] / 2 - 0.5 + down
        mount = Mount(np.array([ahead, left, 1.6]), rotation / np.linalg.norm(rotation))
        found[channel] = Lens(mount, intrinsic, np.array(DISTORTION), size[1], size[0])
    return found


class Camera:
    """A lens with the direction of each of its pixels."""

    def __init__(self, lens: Lens) -> None:
        self._lens = lens
        down, right = np.mgrid[0 : lens.height, 0 : lens.width].astype(np.float64)
        pixels = np.stack([right, down], axis=-1).reshape(-1, 1, 2)
        criteria = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 40, 1e-6)
        straight = cv2.undistortImagePoints(pixels, lens.intrinsic, lens.distortion, None, criteria).reshape(-1, 2)
        scale = np.array([lens.intrinsic[0, 0], lens.intrinsic[1, 1]])
        rays = (straight - lens.intrinsic[:2, 2]) / scale
        self._rays = np.concatenate([rays, np.ones((len(rays), 1))], axis=1)

    def picture(self, town: Town, vehicle: Doubles, boxes: Doubles, colours: npt.NDArray[np.uint8]) -> bytes:
        """Returns the JPEG seen from a vehicle's pose (4, 4) in the city.

        Boxes are (n, 7): x, y, yaw, length, width, height, height of the ground; colours (n, 3) RGB.
        """
        lens = self._lens
        camera = vehicle @ transform(lens.mount.translation, lens.mount.rotation)
        rays = self._rays @ camera[:3, :3].T
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = (town.height - camera[2, 3]) / rays[:, 2]
        ground = (rays[:, 2] < -1e-6) & (reach < 400.0)
        shown = np.empty((len(rays), 3), np.uint8)
        shown[:] = _HORIZON
        shown[ground] = town.colours(camera[:2, 3] + reach[ground, None] * rays[ground, :2])
        picture = np.ascontiguousarray(shown.reshape(lens.height, lens.width, 3))
        self._draw(picture, camera, boxes, colours)
        return bytes(simplejpeg.encode_jpeg(picture, 90, "RGB"))

    def _draw(
        self, picture: npt.NDArray[np.uint8], camera: Doubles, boxes: Doubles, colours: npt.NDArray[np.uint8]
    ) -> None:
        """Paints the boxes, the farthest first; sides of a box have shades of its colour."""
        away = np.hypot(boxes[:, 0] - camera[0, 3], boxes[:, 1] - camera[1, 3])
        for number in np.argsort(-away):
            corners = moved(box_corners(boxes[number]), inverse(camera))
            # The lens model holds to 45 degrees; boxes that reach beyond are painted by their corners within.
            seen = (corners[:, 2] > _NEAR_M) & (np.abs(corners[:, 0]) < 1.1 * corners[:, 2])
            if seen.sum() < 3:
                continue
            pixels = projected(corners[seen], self._lens.intrinsic, self._lens.distortion)
            hull = cv2.convexHull(np.round(pixels).astype(np.int32).reshape(-1, 1, 2))
            colour = tuple(int(value) for value in colours[number])
            cv2.fillConvexPoly(picture, hull, colour)
            cv2.polylines(picture, [hull], True, tuple(value // 2 for value in colour), 1)


def box_corners(box: Doubles) -> Doubles:
    """Returns the corners (8, 3) of x, y, yaw, length, width, height, ground."""
    x, y, yaw, length, width, height, ground = (float(value) for value in box)
    scaled = _EDGES * np.array([length, width, height])
    places = turned(scaled[:, :2], yaw) + np.array([x, y])
    return np.concatenate([places, scaled[:, 2:] + ground], axis=1)


def cloud(town: Town, vehicle: Doubles, boxes: Doubles, random: np.random.Generator) -> bytes:
    """Returns the PCD file of a sweep: the first thing that each ray of each ring meets, box or ground."""
    lidar = vehicle @ transform(LIDAR.translation, LIDAR.rotation)
    azimuth = 2 * np.pi * (np.arange(DIRECTIONS) + random.uniform()) / DIRECTIONS
    heading = np.arctan2(lidar[1, 0], lidar[0, 0])
    ways = np.stack([np.cos(azimuth + heading), np.sin(azimuth + heading)], axis=1)
    distance = np.stack([_reach(lidar[:2, 3], ways, box) for box in boxes]) if len(boxes) else np.empty((0, DIRECTIONS))
    slopes = np.tan(np.radians(np.linspace(-24.0, 4.0, RINGS)))
    above = lidar[2, 3] - town.height
    tops = boxes[:, 5] if len(boxes) else np.empty(0)
    heights = above + slopes[:, None, None] * distance[None]
    met = np.where((distance[None] < FAR_M) & (heights >= 0) & (heights <= tops[:, None]), distance[None], np.inf)
    nearest = met.min(axis=1) if len(boxes) else np.full((RINGS, DIRECTIONS), np.inf)
    ground = np.where(slopes < 0, -above / np.where(slopes < 0, slopes, 1.0), np.inf)[:, None]
    reach = np.minimum(nearest, ground)
    ring, direction = np.nonzero(reach < FAR_M)
    far = reach[ring, direction] * (1 + 0.002 * random.normal(size=len(ring)))
    places = lidar[:2, 3] + far[:, None] * ways[direction]
    points = moved(np.concatenate([places, (lidar[2, 3] + slopes[ring] * far)[:, None]], axis=1), inverse(lidar))
    bright = np.where(nearest[ring, direction] < ground[ring, 0], 180, 60) + random.integers(0, 40, len(ring))
    return _pcd(points, bright, ring)


def _reach(origin: Doubles, ways: Doubles, box: Doubles) -> Doubles:
    """Returns how far rays in the plane go until they meet a box's outline; _MISSED for those that miss it."""
    start, way = turned(origin - box[:2], -float(box[2])), turned(ways, -float(box[2]))
    half = box[3:5] / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = (-half - start) / way, (half - start) / way
    near, far = np.minimum(low, high).max(axis=1), np.maximum(low, high).min(axis=1)
    return np.asarray(np.where((near <= far) & (near > 0), near, _MISSED))


def _pcd(points: Doubles, intensity: npt.NDArray[np.int64], ring: npt.NDArray[np.int64]) -> bytes:
    row = np.dtype([("xyz", "<f4", 3), ("intensity", "u1"), ("ring", "u1"), ("lidar_info", "u1")])
    table = np.zeros(len(points), row)
    table["xyz"], table["intensity"], table["ring"] = points, intensity, ring
    header = (
        "# .PCD v0.7 - Point Cloud Data file format\nVERSION 0.7\nFIELDS x y z intensity ring lidar_info\n"
        "SIZE 4 4 4 1 1 1\nTYPE F F F U U U\nCOUNT 1 1 1 1 1 1\n"
        f"WIDTH {len(points)}\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS {len(points)}\nDATA binary\n"
    )
    return header.encode() + table.tobytes() + bytes(32)


def _times(one: Doubles, other: Doubles) -> Doubles:
    """Returns the product of two quaternions."""
    w, x, y, z = one
    a, b, c, d = other
    return np.array(
        [
            w * a - x * b - y * c - z * d,
            w * b + x * a + y * d - z * c,
            w * c - x * d + y * a + z * b,
            w * d + x * c - y * b + z * a,
        ]
    )
