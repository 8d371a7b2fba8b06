"""One example route, simulated: the ego, the traffic, the lights, and everything that stands around.

Called by `route_files.py` once a route; what it returns is read by scene, labels and metas. Deterministic from the
generator.
"""

from dataclasses import dataclass

import numpy as np

from lead_trainer.example_worlds.lead.actors import Actor, Kind, moving
from lead_trainer.example_worlds.lead.driving import STEP_S, Ahead, Driver, curve_speed, vehicle_ahead
from lead_trainer.example_worlds.lead.geometry import Curve, FloatArray, Pose2
from lead_trainer.example_worlds.lead.roads import BACK_M, LANE_WIDTH_M, RoadMap, build_road_map
from lead_trainer.example_worlds.lead.scenarios import SCENARIOS, Lights, Scenario, lights_at
from lead_trainer.example_worlds.lead.surroundings import CAR_COLOURS, surroundings

HISTORY_STEPS = 45
"""Steps simulated before the first saved frame, so that every frame has two seconds of past."""
STEPS_PER_FRAME = 5
EGO_EXTENT = (2.4508416652679443, 1.0641621351242065, 0.7553732395172119)


@dataclass(frozen=True)
class Episode:
    """A simulated route; arrays have one entry per 20 Hz step and start `HISTORY_STEPS` before frame 0."""

    scenario: Scenario
    roads: RoadMap
    actors: tuple[Actor, ...]
    lights: tuple[Lights, ...]
    ego_arc: FloatArray
    ego_xy: FloatArray
    ego_yaw: FloatArray
    ego_speed: FloatArray
    ego_acceleration: FloatArray
    ego_limit: FloatArray
    ego_reason: tuple[Ahead | None, ...]
    perturbation: FloatArray
    frames: int

    def step_of(self, frame: int) -> int:
        """Returns the index into the tracks of a saved frame."""
        return HISTORY_STEPS + frame * STEPS_PER_FRAME

    def ego_pose(self, step: int) -> Pose2:
        """Returns the ego's pose at a step."""
        return Pose2(float(self.ego_xy[step, 0]), float(self.ego_xy[step, 1]), float(self.ego_yaw[step]))


def simulate(rng: np.random.Generator, route: int, frames: int) -> Episode:
    """Returns route number `route` with `frames` saved frames."""
    scenario = SCENARIOS[route % len(SCENARIOS)]
    steps = HISTORY_STEPS + (frames - 1) * STEPS_PER_FRAME + 5
    roads = build_road_map(
        rng,
        ahead_m=max(150.0, steps * STEP_S * 10.0 + 60.0),
        crossing_at_m=scenario.crossing_at_m,
        turn=scenario.turn,
        swerve_at_m=scenario.hazard_at_m if scenario.swerves else None,
    )
    traffic = _Traffic(rng, scenario, roads)
    lights = tuple(lights_at(scenario, (step - HISTORY_STEPS) * STEP_S) for step in range(steps))
    for step in range(steps):
        traffic.step(step, lights[step])
    ego = traffic.ego
    xy, yaw = ego.lane.at(np.array(ego.arcs))
    return Episode(
        scenario=scenario,
        roads=roads,
        actors=(*traffic.tracks(), *surroundings(rng, scenario, roads)),
        lights=lights,
        ego_arc=np.array(ego.arcs),
        ego_xy=xy,
        ego_yaw=yaw,
        ego_speed=np.array(ego.speeds),
        ego_acceleration=np.array(ego.accelerations),
        ego_limit=np.array(ego.wanted),
        ego_reason=tuple(ego.reasons),
        perturbation=_perturbations(rng, frames),
        frames=frames,
    )


def _perturbations(rng: np.random.Generator, frames: int) -> FloatArray:
    """Sideways shift (m) and turn (degrees) of the second rig, per frame (frames, 2)."""
    shift = rng.uniform(0.1, 1.0, frames) * rng.choice([-1.0, 1.0], frames)
    turn = rng.uniform(5.0, 12.5, frames) * rng.choice([-1.0, 1.0], frames)
    return np.stack([shift, turn], axis=1)


class _Traffic:
    """Moves every driver, and the people who cross, one step at a time."""

    def __init__(self, rng: np.random.Generator, scenario: Scenario, roads: RoadMap) -> None:
        self.scenario, self.roads, self.rng = scenario, roads, rng
        start = roads.start_arc_on_ego_lane_m
        cruise = float(rng.uniform(8.0, 9.5))
        self.ego = Driver(roads.ego_lane, start - 0.95 * cruise * 2.2, 0.95 * cruise, cruise, 2.45, 1)
        self.ego_speed_limit = curve_speed(roads.ego_lane, cruise)
        self.same_lane: list[Driver] = []
        self.oncoming: list[Driver] = []
        self.crossing: list[list[Driver]] = [[], []]
        self.bicycles: list[Driver] = []
        self.walkers: list[tuple[Curve, float, float, int, list[float]]] = []
        self.stopped_at_sign = 0
        self._place(start)

    def _place(self, start: float) -> None:
        rng, roads, scenario = self.rng, self.roads, self.scenario
        if scenario.hazard == "hard_brake":
            self.same_lane.append(Driver(roads.ego_lane, start + 2.0, 8.0, 8.4, 2.39, 20))
        self.same_lane.append(Driver(roads.ego_lane, start - 39.0 - rng.uniform(0, 5), 7.5, 8.5, 2.39, 21))
        crossing_on_oncoming = roads.oncoming_lane.nearest_arc(roads.crossing.xy)
        first = crossing_on_oncoming + (scenario.crossing_at_m - 29.0 if scenario.swerves else -12.0)
        for number in range(4):
            arc = first + number * 21.0 + rng.uniform(0, 7) - (0.0 if scenario.swerves else 45.0)
            self.oncoming.append(Driver(roads.oncoming_lane, arc, 7.0, rng.uniform(7.0, 9.0), 2.39, 30 + number))
        if scenario.turn == "left" or scenario.signal == "stop_sign":
            self.oncoming = [d for d in self.oncoming if d.arc > crossing_on_oncoming + 8.0]
        if scenario.turn == "left":
            self.oncoming.append(Driver(roads.oncoming_lane, crossing_on_oncoming - 40.0, 6.0, 7.0, 2.39, 39))
        for side in (0, 1):
            centre = roads.cross_lanes[side].nearest_arc(roads.crossing.xy)
            for number, back in enumerate((19.0, 33.0)):
                arc = centre - back - rng.uniform(0, 6)
                self.crossing[side].append(
                    Driver(roads.cross_lanes[side], arc, 5.0, 7.5, 2.39, 50 + 10 * side + number)
                )
        edge = roads.oncoming_lane.offset(LANE_WIDTH_M / 2 + 0.7)
        at = edge.nearest_arc(roads.main.pose(BACK_M + 26.0 + rng.uniform(0, 8)).xy)
        self.bicycles.append(Driver(edge, at, 3.5, 4.0, 0.8, 70))
        if scenario.hazard == "bicycles":
            lane = roads.cross_lanes[1].offset(LANE_WIDTH_M / 2 + 0.6)
            centre = lane.nearest_arc(roads.crossing.xy)
            self.bicycles += [Driver(lane, centre - 1.0 - 4.0 * n, 3.6, 4.2, 0.8, 71 + n) for n in range(3)]
        self._place_walkers()

    def _place_walkers(self) -> None:
        rng, roads = self.rng, self.roads
        for number in range(8):
            ahead = 4.0 + 8.0 * number - self.scenario.crossing_at_m
            if abs(ahead) < 13.0:
                continue
            path = roads.main.offset((6.4 + 0.25 * number) * (1.0 if number % 2 else -1.0))
            path = path if ahead > 0 else path.reversed()
            at = path.nearest_arc(roads.main.pose(BACK_M + 4.0 + 8.0 * number).xy)
            self.walkers.append((path, at, float(rng.uniform(0.9, 1.6)), 80 + number, []))
        if self.scenario.hazard == "walker":
            pose = roads.main.pose(BACK_M + self.scenario.hazard_at_m)
            line = np.stack([pose.shifted(right, 0.0).xy for right in np.linspace(6.4, -14.0, 80)])
            self.walkers.append((Curve.through(line), 0.0, 1.5, 90, []))

    def step(self, step: int, lights: Lights) -> None:
        """Records and advances everybody by one step of 0.05 s."""
        time_s = (step - HISTORY_STEPS) * STEP_S
        same = [self.ego, *self.same_lane]
        for driver in self.same_lane:
            ahead = vehicle_ahead(driver, same) + self._stop_line(driver, lights.ego)
            hard = driver.actor_id == 20 and 1.5 <= time_s < 3.4
            driver.step(ahead, limit=driver.cruise, forced=-4.5 if hard else None)
        self.ego.step(self._ahead_of_ego(lights.ego), limit=self.ego_speed_limit(self.ego.arc))
        for driver in self.oncoming:
            driver.step(
                vehicle_ahead(driver, self.oncoming)
                + _light_ahead(driver, self._crossing_arc(driver) - 11.5, lights.oncoming)
                + self._walker_ahead_of_oncoming(driver),
                limit=driver.cruise,
            )
        for lane in self.crossing:
            for driver in lane:
                stop = _light_ahead(driver, self._crossing_arc(driver) - 11.5, lights.crossing)
                driver.step(vehicle_ahead(driver, lane) + stop, limit=driver.cruise)
        for driver in self.bicycles:
            state = lights.crossing if driver.actor_id > 70 else lights.oncoming
            stop = _light_ahead(driver, self._crossing_arc(driver) - 8.0, state)
            driver.step(vehicle_ahead(driver, self.bicycles[1:]) + stop, limit=4.2)
        self._walk()

    def _crossing_arc(self, driver: Driver) -> float:
        return driver.lane.nearest_arc(self.roads.crossing.xy)

    def _walker_ahead_of_oncoming(self, driver: Driver) -> list[Ahead]:
        if self.scenario.hazard != "walker":
            return []
        hazard = self.roads.main.pose(BACK_M + self.scenario.hazard_at_m)
        gap = driver.lane.nearest_arc(hazard.xy) - driver.arc - driver.half_length_m
        across = self.walkers[-1][1] - 6.4
        return [Ahead(gap, 0.0, "walker", 90, 2.5)] if -4.5 < across < 5.0 and gap > 0.0 else []

    def _walk(self) -> None:
        for number, (path, arc, speed, actor_id, arcs) in enumerate(self.walkers):
            arcs.append(arc)
            waits = actor_id == 90 and self._distance_to_hazard() > 25.0
            self.walkers[number] = (path, arc if waits else arc + speed * STEP_S, speed, actor_id, arcs)

    def _distance_to_hazard(self) -> float:
        pose = self.roads.main.pose(BACK_M + self.scenario.hazard_at_m)
        return self.roads.ego_lane.nearest_arc(pose.xy) - self.ego.arc

    def _stop_line(self, driver: Driver, light: str) -> list[Ahead]:
        return _light_ahead(driver, self.roads.stop_arc_on_ego_lane_m, light)

    def _ahead_of_ego(self, light: str) -> list[Ahead]:
        ego = self.ego
        ahead = vehicle_ahead(ego, [ego, *self.same_lane]) + self._stop_line(ego, light) + self._stop_sign()
        if self.scenario.hazard == "walker":
            across = self.walkers[-1][1] - 6.4
            if -4.2 < across < 1.2 and self._distance_to_hazard() > 0.5:
                ahead.append(Ahead(self._distance_to_hazard() - 2.45, 0.0, "walker", 90, 2.5))
        return ahead

    def _stop_sign(self) -> list[Ahead]:
        gap = self.roads.stop_arc_on_ego_lane_m - self.ego.arc - 2.45
        if self.scenario.signal != "stop_sign" or gap < -1.0:
            return []
        busy = any(
            abs(driver.arc - driver.lane.nearest_arc(self.roads.crossing.xy) + 4.0) < 14.0
            for lane in self.crossing
            for driver in lane
        )
        self.stopped_at_sign += self.ego.speed < 0.3 and gap < 3.0
        if self.stopped_at_sign > 16 and not busy:
            return []
        return [Ahead(gap, 0.0, "stop_sign", None, 0.6)]

    def tracks(self) -> list[Actor]:
        """Returns the recorded tracks as actors."""
        vehicles = [*self.same_lane, *self.oncoming, *self.crossing[0], *self.crossing[1], *self.bicycles]
        made = []
        for number, driver in enumerate(vehicles):
            xy, yaw = driver.lane.at(np.array(driver.arcs))
            kind: Kind = "bicycle" if driver.half_length_m < 1 else ("van" if number % 4 == 3 else "car")
            colour = CAR_COLOURS[int(self.rng.integers(len(CAR_COLOURS)))]
            role = "scenario" if driver.actor_id == 20 or driver.actor_id > 70 else "background"
            made.append(moving(driver.actor_id, kind, colour, xy=xy, yaw=yaw, speed=np.array(driver.speeds), role=role))
        for path, _, _, actor_id, arcs in self.walkers:
            xy, yaw = path.at(np.array(arcs))
            speed = np.gradient(np.array(arcs)) / STEP_S
            colour = CAR_COLOURS[int(self.rng.integers(len(CAR_COLOURS)))]
            made.append(moving(actor_id, "walker", colour, xy=xy, yaw=yaw, speed=speed, role=""))
        return made


def _light_ahead(driver: Driver, stop_arc: float, light: str) -> list[Ahead]:
    """Returns the stop line as an obstacle while the light forbids to pass and the driver can still stop."""
    gap = stop_arc - driver.arc - driver.half_length_m
    if light in ("Green", "None") or gap < -0.5 or driver.speed**2 / (2 * 5.0) > gap + 1.0:
        return []
    return [Ahead(max(gap, 0.1), 0.0, "light", None, 0.6)]
