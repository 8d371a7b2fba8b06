"""Where real data is trained beside CARLA's, labels tell nothing of what a car is in its scenario, as in LEAD."""

from typing import Any

import numpy as np
import pytest

from lead_trainer.recipes.lead.config_values import load_config
from lead_trainer.recipes.lead.prepare_keys import PreparationKeys
from lead_trainer.recipes.lead.targets.boxes import SceneFacts, box_rows
from lead_trainer.recipes.lead.targets.label_classes import (
    BIKES,
    CONE,
    EMERGENCY,
    MESH_SIZES,
    WARNING,
    BoxClass,
    BoxColumn,
    Occupancy,
)
from lead_trainer.recipes.lead.targets.occupancy import occupancy_plane
from lead_trainer.recipes.lead.targets.view import NORMAL

ALONE = PreparationKeys.of(load_config({}))
BESIDE = PreparationKeys.of(load_config({"use_navsim_data": True, "LTF": True}))
ACCIDENT = SceneFacts("Accident", frozenset({1}), False, False, False, False)
CAR = {
    "class": "car", "id": 1, "position": [10.0, 0.0, 0.0], "extent": [2.0, 1.0, 0.7], "yaw": 0.0, "speed": 0.0,
    "brake": 0.0, "num_points": 50, "visible_pixels": 50, "transfuser_semantics_id": 1, "role_name": "scenario",
    "type_id": "vehicle.tesla.model3", "lane_type_str": "Driving",
}  # fmt: skip
STATIC = {**CAR, "class": "static", "type_id": "static.prop.mesh"}
Case = tuple[dict[str, Any], BoxClass, BoxClass, Occupancy, Occupancy]
CASES: list[Case] = [  # box, its detection class alone and beside real data, its occupancy alone and beside
    (CAR, BoxClass.OBSTACLE, BoxClass.VEHICLE, Occupancy.OBSTACLE, Occupancy.VEHICLE),
    ({**CAR, "type_id": min(EMERGENCY), "id": 2, "speed": 5.0}, BoxClass.SPECIAL, BoxClass.VEHICLE,
     Occupancy.SPECIAL, Occupancy.VEHICLE),
    ({**CAR, "type_id": min(BIKES)}, BoxClass.BIKER, BoxClass.BIKER, Occupancy.BIKER, Occupancy.BIKER),
    ({**STATIC, "mesh_path": min(MESH_SIZES, key=lambda path: "ParkedVehicles" not in path)}, BoxClass.PARKING,
     BoxClass.VEHICLE, Occupancy.PARKING, Occupancy.NONE),
    ({**STATIC, "type_id": CONE}, BoxClass.OBSTACLE, BoxClass.OBSTACLE, Occupancy.OBSTACLE, Occupancy.OBSTACLE),
    ({**CAR, "class": "static_prop_car"}, BoxClass.PARKING, BoxClass.VEHICLE, Occupancy.PARKING, Occupancy.PARKING),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_a_box_has_the_class_that_lead_gives_it_in_each_mode(case: Case) -> None:
    box, *expected = case
    classes = [box_rows([box], ACCIDENT, NORMAL, keys)[0, BoxColumn.CLASS] for keys in (ALONE, BESIDE)]
    drawn = [occupancy_plane([box], ACCIDENT, NORMAL, keys).max() for keys in (ALONE, BESIDE)]
    assert [*map(int, classes), *map(int, drawn)] == expected


def test_construction_sites_and_accidents_are_filled_in_leaderboard_mode_alone() -> None:
    site = [{**STATIC, "type_id": CONE, "position": [10.0 + 5 * (n % 3), 8.0 * (n // 3), 0.0]} for n in range(6)]
    site.append({**STATIC, "type_id": WARNING, "position": [8.0, 1.0, 0.0]})
    accident = [{**CAR, "position": [20.0, -8.0, 0.0]}, {**CAR, "position": [34.0, -8.0, 0.0]}]
    for boxes in (site, accident):
        alone, beside = (occupancy_plane(boxes, ACCIDENT, NORMAL, keys) for keys in (ALONE, BESIDE))
        assert np.count_nonzero(alone) > 1.5 * np.count_nonzero(beside) > 0
