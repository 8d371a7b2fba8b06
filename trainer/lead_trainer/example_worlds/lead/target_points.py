"""The sparse route of an example episode: target points with commands, popped as the ego comes near.

Called by `metas.py`. The lists follow LEAD's order: entry 0 of `next` is the point passed last, entry 1 the one ahead.
"""

from typing import Any

import numpy as np

from lead_trainer.example_worlds.lead.roads import RoadMap
from lead_trainer.example_worlds.lead.scenarios import Scenario

LEFT, RIGHT, STRAIGHT, FOLLOW = 1, 2, 3, 4
SPACING_M = 16.0
POP_DISTANCES_M = tuple(float(distance) for distance in np.arange(3.0, 10.01, 0.25))
USED_POP_DISTANCE_M = 3.25
GPS_SHIFT_M = 0.13
MAX_LISTED = 4


class TargetPoints:
    """Points every 16 m along the ego's lane, each with CARLA's road command for the stretch around it."""

    def __init__(self, roads: RoadMap, scenario: Scenario) -> None:
        self.arcs = np.arange(4.0, roads.ego_lane.length_m + 6 * SPACING_M, SPACING_M)
        points = roads.ego_lane.at(self.arcs)[0]
        self.points = [[float(x), float(y), 0.0] for x, y in points]
        stop = roads.stop_arc_on_ego_lane_m
        turn = {"left": LEFT, "right": RIGHT, "straight": STRAIGHT}[scenario.turn]
        self.commands = [turn if stop - 6.0 < arc < stop + 26.0 else FOLLOW for arc in self.arcs]

    def lists(self, arc: float) -> dict[str, Any]:
        """Returns all point and command lists for an ego at this arc length of its lane."""
        made: dict[str, Any] = {}
        for distance in POP_DISTANCES_M:
            name = str(distance)
            passed = max(1, int(np.count_nonzero(self.arcs - distance <= arc)))
            made |= self._pair(passed, f"_{name}", "")
            made |= self._pair(passed, f"_{name}", "gps_")
        passed = max(1, int(np.count_nonzero(self.arcs - USED_POP_DISTANCE_M <= arc)))
        return made | self._pair(passed, "", "")

    def _pair(self, passed: int, suffix: str, kind: str) -> dict[str, Any]:
        shift = GPS_SHIFT_M if kind else 0.0
        points = [[x + shift, y - shift, z] for x, y, z in self.points]
        before, after = slice(max(0, passed - 3), passed - 1), slice(passed - 1, passed - 1 + MAX_LISTED)
        return {
            f"previous_{kind}target_points{suffix}": points[before],
            f"previous_{kind}commands{suffix}": self.commands[before],
            f"next_{kind}target_points{suffix}": points[after],
            f"next_{kind}commands{suffix}": self.commands[after],
        }
