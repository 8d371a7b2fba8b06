"""The class numbers, fixed sizes and blueprint lists that LEAD's labels are made of; facts, no code.

Source of every value: autonomousvision/lead, `lead/common/constants.py` (2025-12). Sizes are half extents in metres.
"""

from enum import IntEnum


class BoxColumn(IntEnum):
    """Columns of a box row; x, y, w, h in BEV pixels once stored, w and h are half extents."""

    X = 0
    Y = 1
    W = 2
    H = 3
    YAW = 4
    VELOCITY = 5
    BRAKE = 6
    CLASS = 7
    RADAR_POINTS = 8


BOX_COLUMNS = len(BoxColumn)


class BoxClass(IntEnum):
    """Detection classes."""

    VEHICLE = 0
    WALKER = 1
    TRAFFIC_LIGHT = 2
    STOP_SIGN = 3
    SPECIAL = 4
    OBSTACLE = 5
    PARKING = 6
    BIKER = 7


class Occupancy(IntEnum):
    """Classes drawn over the map; the BEV class is the number plus OCCUPANCY_OFFSET."""

    NONE = 0
    VEHICLE = 1
    WALKER = 2
    OBSTACLE = 3
    PARKING = 4
    SPECIAL = 5
    BIKER = 6
    GREEN = 7
    RED = 8
    RED_NOT_NORMAL = 9  # overhead or European light


OCCUPANCY_OFFSET = 3
MAP_CLASSES = (0, 1, 0, 2, 2, 3, 0, 0, 0)  # stored hdmap value -> none, road, lane marking, stop sign

SEMANTIC_VEHICLE = 1
SEMANTIC_PEDESTRIAN = 4

EMERGENCY = frozenset(
    {
        "vehicle.dodge.charger_police_2020",
        "vehicle.dodge.charger_police",
        "vehicle.ford.ambulance",
        "vehicle.carlamotors.firetruck",
    }
)
BIKES = frozenset(
    {
        "vehicle.diamondback.century",
        "vehicle.gazelle.omafiets",
        "vehicle.bh.crossbike",
        "vehicle.harley-davidson.low_rider",
        "vehicle.kawasaki.ninja",
        "vehicle.vespa.zx125",
        "vehicle.yamaha.yzf",
    }
)
CONE = "static.prop.constructioncone"
WARNING = "static.prop.trafficwarning"
PROP_SIZES = {CONE: (0.1720348298549652, 0.1720348298549652), WARNING: (1.186714768409729, 1.4352929592132568)}

_PARKED = "/Game/Carla/Static/Car/4Wheeled/ParkedVehicles"
_DYNAMIC = "/Game/Carla/Static/Dynamic"
MESH_SIZES: dict[str, tuple[float, float]] = {
    f"{_PARKED}/Lincoln/SM_LincolnParked.SM_LincolnParked": (2.44619083404541, 1.115301489830017),
    f"{_PARKED}/Charger/SM_ChargerParked.SM_ChargerParked": (2.5039126873016357, 1.0485419034957886),
    f"{_PARKED}/VolkswagenT2/SM_VolkswagenT2_2021_Parked.SM_VolkswagenT2_2021_Parked": (
        2.2210919857025146,
        0.9388753771781921,
    ),
    f"{_PARKED}/FordCrown/SM_FordCrown_parked.SM_FordCrown_parked": (2.6828393936157227, 0.9732309579849243),
    f"{_PARKED}/NissanPatrol2021/SM_NissanPatrol2021_parked.SM_NissanPatrol2021_parked": (
        2.782914400100708,
        1.217571496963501,
    ),
    f"{_PARKED}/MercedesCCC/SM_MercedesCCC_Parked.SM_MercedesCCC_Parked": (2.3368194103240967, 1.0011461973190308),
    f"{_PARKED}/TeslaM3/SM_TeslaM3_parked.SM_TeslaM3_parked": (2.3958897590637207, 1.081725001335144),
    f"{_PARKED}/Mini2021/SM_Mini2021_parked.SM_Mini2021_parked": (2.2763495445251465, 1.0926425457000732),
    f"{_DYNAMIC}/Garden/SM_PlasticTable.SM_PlasticTable": (1.241101622581482, 1.241101622581482),
    f"{_DYNAMIC}/Garden/SM_PlasticChair.SM_PlasticChair": (0.36523768305778503, 0.37522444128990173),
    f"{_DYNAMIC}/Construction/SM_ConstructionCone.SM_ConstructionCone": (0.1720348298549652, 0.1720348298549652),
}

BLOCKING_SCENARIOS = frozenset(
    {"Accident", "AccidentTwoWays", "BlockedIntersection", "ParkedObstacle", "ParkedObstacleTwoWays"}
)
PARKING_SCENARIOS = frozenset(
    {"ParkingCrossingPedestrian", "ParkingCutIn", "StaticCutIn", "PedestrianCrossing", "ParkingExit"}
)
DOOR_SCENARIO = "VehicleOpensDoorTwoWays"

NO_SCENARIO = "NA"
SCENARIO_TYPES: tuple[str, ...] = (
    "Accident", "AccidentTwoWays", "BlockedIntersection", "ConstructionObstacle", "ConstructionObstacleTwoWays",
    "ControlLoss", "CrossJunctionDefectTrafficLight", "CrossingBicycleFlow", "DynamicObjectCrossing",
    "EnterActorFlow", "EnterActorFlowV2", "HardBreakRoute", "HazardAtSideLane", "HazardAtSideLaneTwoWays",
    "HighwayCutIn", "HighwayExit", "InterurbanActorFlow", "InterurbanAdvancedActorFlow", "InvadingTurn",
    "MergerIntoSlowTraffic", "MergerIntoSlowTrafficV2", "NonSignalizedJunctionLeftTurn",
    "NonSignalizedJunctionLeftTurnEnterFlow", "NonSignalizedJunctionRightTurn", "noScenarios",
    "OppositeVehicleRunningRedLight", "OppositeVehicleTakingPriority", "ParkedObstacle", "ParkedObstacleTwoWays",
    "ParkingCrossingPedestrian", "ParkingCutIn", "ParkingExit", "PedestrianCrossing", "PriorityAtJunction",
    "RedLightWithoutLeadVehicle", "SequentialLaneChange", "SignalizedJunctionLeftTurn",
    "SignalizedJunctionLeftTurnEnterFlow", "SignalizedJunctionRightTurn", "StaticCutIn", "T_Junction",
    "VanillaNonSignalizedTurn", "VanillaNonSignalizedTurnEncounterStopsign",
    "VanillaSignalizedTurnEncounterGreenLight", "VanillaSignalizedTurnEncounterRedLight", "VehicleOpensDoorTwoWays",
    "VehicleTurningRoute", "VehicleTurningRoutePedestrian", "YieldToEmergencyVehicle", NO_SCENARIO,
)  # fmt: skip
