"""What happens on each kind of example route: the CARLA scenario it stands for, its town, turn, signals and hazards.

Called by `episode.py`. Pure data; a route takes the scenario at its index, round robin.
"""

from dataclasses import dataclass
from typing import Literal

from lead_trainer.example_worlds.lead.roads import Turn

Signal = Literal["red_to_green", "green_to_red", "green", "stop_sign"]
Hazard = Literal["none", "construction", "parked_obstacle", "walker", "hard_brake", "bicycles"]


@dataclass(frozen=True)
class Scenario:
    """One row of the table below; `hazard_at_m` counts from the ego's start."""

    name: str
    town: str
    turn: Turn
    signal: Signal
    hazard: Hazard
    crossing_at_m: float
    hazard_at_m: float = 0.0
    weather: str = "ClearNoon"

    @property
    def swerves(self) -> bool:
        return self.hazard in ("construction", "parked_obstacle")


SCENARIOS = (
    Scenario("SignalizedJunctionLeftTurn", "Town03", "left", "red_to_green", "none", 37.0),
    Scenario("ConstructionObstacle", "Town05", "straight", "green", "construction", 92.0, 34.0, "CloudyNoon"),
    Scenario("PedestrianCrossing", "Town13", "straight", "green", "walker", 62.0, 30.0, "ClearSunset"),
    Scenario(
        "VanillaNonSignalizedTurnEncounterStopsign", "Town12", "right", "stop_sign", "none", 36.0, weather="CloudyNoon"
    ),
    Scenario("ParkedObstacle", "Town06", "straight", "green_to_red", "parked_obstacle", 84.0, 32.0),
    Scenario("HardBreakRoute", "Town10HD", "straight", "green", "hard_brake", 70.0, weather="ClearSunset"),
    Scenario("SignalizedJunctionRightTurn", "Town03", "right", "green_to_red", "none", 46.0, weather="CloudyNoon"),
    Scenario("CrossingBicycleFlow", "Town12", "straight", "red_to_green", "bicycles", 42.0),
)
"""Names come from LEAD's fixed list of scenario types: its loader refuses others."""


def signal_state(signal: Signal, time_s: float) -> str:
    """Returns the state of the ego's light: LEAD's `Green`, `Yellow`, `Red`, or `None` for a crossing without one."""
    if signal == "stop_sign":
        return "None"
    if signal == "green":
        return "Green"
    if signal == "red_to_green":
        return "Red" if time_s % 16.0 < 3.25 else ("Green" if time_s % 16.0 < 13.0 else "Yellow")
    phase = time_s % 18.0
    return "Green" if phase < 1.0 else ("Yellow" if phase < 2.5 else ("Red" if phase < 9.0 else "Green"))


CLEARANCE_S = 3.0


@dataclass(frozen=True)
class Lights:
    """The three lights of the crossing at one moment."""

    ego: str
    oncoming: str
    crossing: str


def lights_at(scenario: Scenario, time_s: float) -> Lights:
    """Returns all lights; the crossing street turns red `CLEARANCE_S` before the ego gets green."""
    ego = signal_state(scenario.signal, time_s)
    if ego == "None":
        return Lights(ego, ego, ego)
    soon = signal_state(scenario.signal, time_s + CLEARANCE_S)
    crossing = "Green" if ego == "Red" and soon == "Red" else "Red"
    return Lights(ego, "Red" if scenario.turn == "left" else ego, crossing)
