"""What stands around an example route: parked cars, obstacles, buildings, trees, lamp and sign poles.

Called by `episode.py`. Everything here stands still, at places from the road map.
"""

import numpy as np

from lead_trainer.example_worlds.lead.actors import Actor, Kind, standing
from lead_trainer.example_worlds.lead.geometry import Curve, Pose2
from lead_trainer.example_worlds.lead.roads import BACK_M, LANE_WIDTH_M, PARKING_WIDTH_M, RoadMap
from lead_trainer.example_worlds.lead.scenarios import Scenario

CAR_COLOURS = (
    (196, 198, 202), (38, 40, 46), (152, 28, 30), (32, 62, 128), (226, 226, 222),
    (92, 98, 104), (64, 92, 70), (186, 142, 48), (118, 44, 60), (70, 120, 160),
)  # fmt: skip
HOUSE_COLOURS = ((172, 158, 140), (150, 122, 104), (186, 180, 170), (134, 138, 144), (164, 134, 112), (196, 178, 146))


def surroundings(rng: np.random.Generator, scenario: Scenario, roads: RoadMap) -> list[Actor]:
    """Returns every standing actor of a route, with ids from 200 on."""
    made = [*_parked(rng, roads, scenario), *_obstacles(roads, scenario)]
    made += _poles(roads, scenario)
    made += _row(rng, roads, roads.main)
    made += _row(rng, roads, roads.cross)
    return made


def _near_crossing(roads: RoadMap, xy: np.ndarray, reach_m: float) -> bool:
    return float(np.linalg.norm(xy - roads.crossing.xy)) < reach_m


def _parked(rng: np.random.Generator, roads: RoadMap, scenario: Scenario) -> list[Actor]:
    """Cars in the right parking strip, with gaps."""
    made = []
    for number, arc in enumerate(np.arange(BACK_M - 40.0, roads.main.length_m - 40.0, 6.6)):
        pose = roads.main.pose(float(arc)).shifted(LANE_WIDTH_M + PARKING_WIDTH_M / 2 + 0.05, 0.0)
        gap_for_walker = scenario.hazard == "walker" and abs(arc - BACK_M - scenario.hazard_at_m) < 6.0
        if rng.random() < 0.45 or _near_crossing(roads, pose.xy, 22.0) or gap_for_walker:
            continue
        kind: Kind = "parked_mesh" if number % 3 == 0 else "parked_car"
        colour = CAR_COLOURS[int(rng.integers(len(CAR_COLOURS)))]
        made.append(standing(200 + number, kind, pose, colour))
    return made


def _obstacles(roads: RoadMap, scenario: Scenario) -> list[Actor]:
    """What blocks the ego's lane where the scenario asks for it."""
    lane = roads.main.offset(LANE_WIDTH_M / 2)
    centre = lane.nearest_arc(roads.main.pose(BACK_M + scenario.hazard_at_m).shifted(LANE_WIDTH_M / 2, 0.0).xy)
    if scenario.hazard == "parked_obstacle":
        return [
            standing(20 + n, "car", lane.pose(centre - 3.0 + 6.5 * n), CAR_COLOURS[2 + n], role="scenario")
            for n in range(2)
        ]
    if scenario.hazard != "construction":
        return []
    cones = [(-6.0, 1.2), (-5.0, 0.4), (-3.8, -0.4), (-2.6, -0.9), (0.0, -1.1), (2.6, -1.1), (5.0, -0.9), (6.0, 0.2)]
    made = [
        standing(110 + n, "cone", lane.pose(centre + along).shifted(right, 0.0), (226, 96, 28), role="scenario")
        for n, (along, right) in enumerate(cones)
    ]
    made.append(standing(120, "warning", lane.pose(centre + 1.0).shifted(0.35, 0.0), (236, 158, 40), role="scenario"))
    return made


def _poles(roads: RoadMap, scenario: Scenario) -> list[Actor]:
    """The poles of lights or stop signs at the four arms of the crossing; `scene.py` hangs the heads on."""
    made = []
    for number in range(4):
        arm = Pose2(roads.crossing.x, roads.crossing.y, roads.crossing.yaw + number * np.pi / 2)
        corner = arm.to_world(np.array([-9.2 if scenario.signal == "stop_sign" else 7.4, 7.4]))
        pose = Pose2(float(corner[0]), float(corner[1]), arm.yaw)
        made.append(standing(400 + number, "pole", pose, (70, 72, 76)))
    return made


def _row(rng: np.random.Generator, roads: RoadMap, road: Curve) -> list[Actor]:
    """Houses and trees along both sides of a road, away from the other road."""
    made: list[Actor] = []
    base = 500 if road is roads.main else 2000
    for side in (-1.0, 1.0):
        for arc in np.arange(4.0, road.length_m - 4.0, 13.0):
            number = base + len(made)
            tree = road.pose(float(arc + rng.uniform(0, 5))).shifted(side * 10.2, 0.0)
            if rng.random() < 0.75 and _clear(roads, road, tree.xy, 12.0):
                green = (int(rng.integers(40, 78)), int(rng.integers(84, 118)), int(rng.integers(32, 56)))
                made.append(standing(number, "tree", tree, green))
            depth = float(rng.uniform(4.0, 6.0))
            extent = (float(rng.uniform(4.5, 6.3)), depth, float(rng.uniform(2.8, 6.5)))
            house = road.pose(float(arc)).shifted(side * (13.5 + depth + float(rng.uniform(0, 2.5))), 0.0)
            if rng.random() < 0.85 and _clear(roads, road, house.xy, 13.0 + float(np.hypot(extent[0], depth))):
                colour = HOUSE_COLOURS[int(rng.integers(len(HOUSE_COLOURS)))]
                made.append(standing(number + 1000, "building", house, colour, extent=extent))
    return made


def _clear(roads: RoadMap, road: Curve, xy: np.ndarray, reach_m: float) -> bool:
    """Returns whether a place beside `road` is off the other road, and off this one's later bends."""
    other = roads.cross if road is roads.main else roads.main
    clearance = min(float(np.min(np.linalg.norm(line.points[::5] - xy, axis=1))) for line in (other,))
    own = float(np.min(np.linalg.norm(road.points[::5] - xy, axis=1)))
    return clearance > reach_m and own > min(reach_m, 9.5)
