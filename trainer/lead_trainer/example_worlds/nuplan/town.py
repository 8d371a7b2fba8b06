"""A made-up town: a round street with two lanes, a walkway around it, crosswalks, stop lines and a car park.

Places are polar, around the town's middle: radius in metres, angle in radians. The ego drives on the inner lane, with
the angle growing; the outer lane leads the other way.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lead_trainer.recipes.nuplan.geometry import Doubles

LANE_M, WALKWAY_M, PARK_M = 3.6, 2.6, 5.0
CROSSWALKS, CROSSWALK_M, STOP_M = 4, 3.0, 2.0  # crosswalks, and how long they and stop areas are along the lane
PARKS = 3  # arcs of the car park, each a sixth of the circle
ARC_STEP = np.radians(3.0)

_GRASS, _ROAD, _WALKWAY, _PARK, _STRIPE, _STOP, _LINE = (
    (88, 128, 72), (66, 66, 70), (176, 170, 160), (104, 104, 124), (232, 232, 232), (120, 70, 70), (206, 200, 120),
)  # fmt: skip


@dataclass(frozen=True)
class Town:
    """A town of one radius; its places in metres of a UTM zone."""

    city: str
    epsg: int
    version: str
    middle: tuple[float, float]  # metres
    height: float  # of the ground, metres
    radius: float  # of the inner lane's middle line
    turn: float  # angle that crosswalks and car parks begin at

    @property
    def inner(self) -> float:
        """The street's inner edge."""
        return self.radius - LANE_M / 2

    @property
    def outer(self) -> float:
        """The street's outer edge."""
        return self.radius + 1.5 * LANE_M

    @property
    def walkway(self) -> float:
        """The walkway's outer edge."""
        return self.outer + WALKWAY_M

    def crosswalk_angles(self) -> list[float]:
        """Returns the middle of each crosswalk."""
        return [self.turn + 2 * np.pi * number / CROSSWALKS for number in range(CROSSWALKS)]

    def park_angles(self) -> list[tuple[float, float]]:
        """Returns where each arc of the car park begins and ends."""
        begins = [self.turn + 0.4 + 2 * np.pi * number / PARKS for number in range(PARKS)]
        return [(begin, begin + np.pi / 3) for begin in begins]

    def place(self, radius: Doubles | float, angle: Doubles | float) -> Doubles:
        """Returns x and y (..., 2) of polar places."""
        x, y = self.middle[0] + radius * np.cos(angle), self.middle[1] + radius * np.sin(angle)
        return np.stack(np.broadcast_arrays(x, y), axis=-1)

    def sector(self, inner: float, outer: float, begin: float, end: float) -> Doubles:
        """Returns the closed outline (n, 2) of a part of a ring."""
        angles = np.linspace(begin, end, max(2, int(np.ceil((end - begin) / ARC_STEP)) + 1))
        there, back = self.place(inner, angles), self.place(outer, angles[::-1])
        return np.concatenate([there, back, there[:1]])

    def colours(self, places: Doubles) -> npt.NDArray[np.uint8]:
        """Returns the colour (..., 3) of the ground at x, y (..., 2)."""
        offset = places - np.array(self.middle)
        radius, angle = np.hypot(offset[..., 0], offset[..., 1]), np.arctan2(offset[..., 1], offset[..., 0])
        found = np.empty((*radius.shape, 3), np.uint8)
        found[:] = _GRASS
        road = (radius > self.inner) & (radius < self.outer)
        found[(radius >= self.outer) & (radius < self.walkway)] = _WALKWAY
        for begin, end in self.park_angles():
            inside = (radius >= self.walkway) & (radius < self.walkway + PARK_M)
            found[inside & ((angle - begin) % (2 * np.pi) < end - begin)] = _PARK
        found[road] = _ROAD
        found[road & (np.abs(radius - self.radius - LANE_M / 2) < 0.12)] = _LINE
        for middle in self.crosswalk_angles():
            along = ((angle - middle + np.pi) % (2 * np.pi) - np.pi) * radius
            stripes = (radius - self.inner) % 1.2 < 0.7
            found[road & (np.abs(along) < CROSSWALK_M / 2) & stripes] = _STRIPE
            before = (along < -CROSSWALK_M / 2) & (along > -CROSSWALK_M / 2 - STOP_M)
            found[before & road & (radius < self.radius + LANE_M / 2)] = _STOP
        return found


def town_of(number: int) -> Town:
    """Returns one of two towns."""
    if number % 2:
        return Town("us-pa-pittsburgh-hazelwood", 32617, "9.17.1937", (587_600.0, 4_475_000.0), 260.0, 46.0, 0.9)
    return Town("us-nv-las-vegas-strip", 32611, "9.15.1915", (664_400.0, 3_997_600.0), 605.0, 38.0, 0.2)
