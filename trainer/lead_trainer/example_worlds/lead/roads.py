"""The road map of one example route: a bent main road, a street that crosses it, and the lane the ego drives.

Called by `episode.py` (lanes) and `ground.py` (surfaces and markings). Pure: everything follows from the arguments.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from lead_trainer.example_worlds.lead.geometry import Curve, FloatArray, Pose2, bezier

LANE_WIDTH_M = 3.5
PARKING_WIDTH_M = 2.3
SIDEWALK_WIDTH_M = 3.0
ROAD_HALF_WIDTH_M = LANE_WIDTH_M + PARKING_WIDTH_M
STOP_LINE_BEFORE_CROSSING_M = 11.5
BACK_M = 90.0
"""How far the main road reaches behind the ego's start."""

Turn = Literal["straight", "left", "right"]


@dataclass(frozen=True)
class RoadMap:
    """Centre lines and lanes; arc lengths of the main road count from `BACK_M` behind the start."""

    main: Curve
    cross: Curve
    crossing: Pose2
    ego_lane: Curve
    oncoming_lane: Curve
    cross_lanes: tuple[Curve, Curve]
    stop_arc_on_ego_lane_m: float
    start_arc_on_ego_lane_m: float


def build_road_map(
    rng: np.random.Generator, *, ahead_m: float, crossing_at_m: float, turn: Turn, swerve_at_m: float | None
) -> RoadMap:
    """Draws the roads of one route; `crossing_at_m` and `swerve_at_m` are distances ahead of the ego's start."""
    main = _main_road(rng, ahead_m=ahead_m, crossing_at_m=crossing_at_m)
    crossing_arc = BACK_M + crossing_at_m
    crossing = main.pose(crossing_arc)
    cross = _cross_road(crossing, ahead_m)
    lane = main.offset(LANE_WIDTH_M / 2)
    if turn != "straight":
        lane = _turning_lane(lane, crossing, left=turn == "left", reach_m=ahead_m - 15.0)
    if swerve_at_m is not None:
        lane = _swerving_lane(lane, main.pose(BACK_M + swerve_at_m))
    stop = main.pose(crossing_arc - STOP_LINE_BEFORE_CROSSING_M)
    return RoadMap(
        main=main,
        cross=cross,
        crossing=crossing,
        ego_lane=lane,
        oncoming_lane=main.reversed().offset(LANE_WIDTH_M / 2),
        cross_lanes=(cross.offset(LANE_WIDTH_M / 2), cross.reversed().offset(LANE_WIDTH_M / 2)),
        stop_arc_on_ego_lane_m=lane.nearest_arc(stop.shifted(LANE_WIDTH_M / 2, 0.0).xy),
        start_arc_on_ego_lane_m=lane.nearest_arc(main.pose(BACK_M).shifted(LANE_WIDTH_M / 2, 0.0).xy),
    )


def _main_road(rng: np.random.Generator, *, ahead_m: float, crossing_at_m: float) -> Curve:
    """A road that bends, runs straight through the crossing, and bends again."""
    step = 0.5
    arc = np.arange(-BACK_M, ahead_m + 110.0, step)
    bend = rng.choice([-1.0, 1.0]) * rng.uniform(1 / 95, 1 / 60)
    later = rng.choice([-1.0, 1.0]) * rng.uniform(1 / 110, 1 / 70)
    before = np.clip((crossing_at_m - 22.0 - arc) / 8.0, 0.0, 1.0) * np.clip((arc + 45.0) / 8.0, 0.0, 1.0)
    after = np.clip((arc - crossing_at_m - 18.0) / 8.0, 0.0, 1.0)
    curvature = bend * before + later * after * np.cos((arc - crossing_at_m) / 45.0)
    heading = np.cumsum(curvature) * step
    heading -= heading[int(BACK_M / step)]
    steps = np.stack([np.cos(heading), np.sin(heading)], axis=1) * step
    points = np.cumsum(steps, axis=0)
    return Curve.through(points - points[int(BACK_M / step)])


def _cross_road(crossing: Pose2, reach_m: float) -> Curve:
    along = np.arange(-reach_m, reach_m)[:, None]
    right = np.array([-np.sin(crossing.yaw), np.cos(crossing.yaw)])
    return Curve.through(crossing.xy + along * right)


def _turning_lane(lane: Curve, crossing: Pose2, *, left: bool, reach_m: float) -> Curve:
    """The right lane up to the crossing, a turn, and the right lane of the crossing street."""
    heading = crossing.yaw + (-np.pi / 2 if left else np.pi / 2)
    out = Pose2(crossing.x, crossing.y, heading)
    forward = np.array([np.cos(heading), np.sin(heading)])
    leave = lane.nearest_arc(crossing.xy) - 9.5
    start = lane.pose(leave)
    end_xy = out.to_world(np.array([9.5, LANE_WIDTH_M / 2]))
    turn = bezier(start, Pose2(float(end_xy[0]), float(end_xy[1]), heading))
    rest = end_xy + np.arange(0.5, reach_m, 0.5)[:, None] * forward
    return Curve.through(np.concatenate([lane.points[lane.arc < leave], turn, rest]))


def _swerving_lane(lane: Curve, obstacle: Pose2) -> Curve:
    """The lane with a smooth bulge into the oncoming lane around an obstacle."""
    distance = np.abs(lane.arc - lane.nearest_arc(obstacle.shifted(LANE_WIDTH_M / 2, 0.0).xy))
    ramp = np.clip((19.0 - distance) / 12.0, 0.0, 1.0)
    smooth: FloatArray = ramp * ramp * (3 - 2 * ramp)
    return lane.offset(-3.3 * smooth)
