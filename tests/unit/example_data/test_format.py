"""Every file of an example tree has the format of LEAD's: names, types, shapes, keys, headers."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import laspy
import numpy as np
import pytest

from lead_testing import shared_dir
from lead_trainer.recipes.lead.ingest.plain_pickle import read_plain

PICTURES = {
    "rgb": ((384, 1152, 3), ".jpg"),
    "semantics": ((384, 1152), ".png"),
    "depth": ((96, 288), ".png"),
    "hdmap": ((256, 256), ".png"),
}


@cache
def golden_route() -> Path:
    return next((shared_dir() / "golden/lead_data/carla_leaderboard2/data/Accident").glob("*_101_*"))


@cache
def required() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((shared_dir() / "golden/lead_data/required_keys.json").read_text())
    return document


def test_a_route_folder_holds_what_leads_holds(frames: list) -> None:
    expected = {(path.name, {file.suffix for file in path.iterdir()}.pop()) for path in golden_route().glob("*/")}
    for route in {frame.route for frame in frames}:
        folders = [path for path in route.iterdir() if path.is_dir()]
        assert {(path.name, {file.suffix for file in path.iterdir()}.pop()) for path in folders} == expected
        assert {len(list(path.iterdir())) for path in folders} == {7}
        assert (
            json.loads((route / "results.json").read_text()).keys()
            == json.loads((golden_route() / "results.json").read_text()).keys()
        )


@pytest.mark.parametrize("folder", [name + suffix for name in PICTURES for suffix in ("", "_perturbated")])
def test_pictures_have_leads_size_and_type(frames: list, folder: str) -> None:
    shape, suffix = PICTURES[folder.removesuffix("_perturbated")]
    for frame in frames[::3]:
        picture = frame.image(folder)
        assert (picture.shape, picture.dtype, frame.path(folder).suffix) == (shape, np.uint8, suffix)


def test_classes_are_transfusers(frames: list) -> None:
    classes = set().union(*(np.unique(frame.image("semantics")).tolist() for frame in frames))
    assert {1, 2, 3, 4, 5, 6, 8, 9} <= classes <= set(range(10))
    values = set().union(*(np.unique(frame.image("hdmap")).tolist() for frame in frames))
    assert {0, 1, 3, 4} <= values <= set(range(9))


def test_lidar_header_equals_leads(frames: list) -> None:
    golden = laspy.read(golden_route() / "lidar/0003.laz")
    for frame in frames[::5]:
        cloud = frame.lidar()
        assert cloud.header.point_format == golden.header.point_format
        assert cloud.header.version == golden.header.version
        assert list(cloud.header.scales) == list(golden.header.scales)
        assert list(cloud.header.offsets) == pytest.approx(cloud.xyz.min(axis=0), abs=0.05)
        assert cloud["time"].dtype == golden["time"].dtype
        assert set(np.unique(cloud["time"])) <= set(range(10))


def test_radar_arrays_equal_leads(frames: list) -> None:
    for frame in frames[::4]:
        for folder in ("radar", "radar_perturbated"):
            with np.load(frame.path(folder)) as arrays:
                assert sorted(arrays) == ["radar1", "radar2", "radar3", "radar4"]
                assert {(arrays[name].ndim, arrays[name].shape[1], arrays[name].dtype.name) for name in arrays} == {
                    (2, 4, "float16")
                }


def test_metas_have_every_key_and_type_of_leads(frames: list) -> None:
    golden = read_plain((golden_route() / "metas/0010.pkl").read_bytes(), "golden")
    for frame in frames:
        missing = (golden.keys() | set(required()["meta_required"]["planner"])) - frame.meta.keys()
        assert not missing
        assert len(frame.meta["next_target_points_3.25"]) >= 2
    for key, value in golden.items():
        ours = frames[0].meta[key]
        if isinstance(value, np.ndarray):
            assert (ours.dtype, ours.ndim, ours.shape[1:]) == (value.dtype, value.ndim, value.shape[1:]), key
        elif value is not None and ours is not None:
            assert type(ours) is type(value), key


def _boxes(frames: list) -> Iterator[dict[str, Any]]:
    for frame in frames:
        yield from frame.boxes


def test_boxes_have_the_keys_that_leads_loader_needs(frames: list) -> None:
    seen = set()
    for box in _boxes(frames):
        seen.add(box["class"])
        assert set(required()["box_required"][box["class"]]) <= box.keys()
        assert len(box["extent"]) == len(box["position"]) == 3
        if "future_positions" in box:
            assert box["future_positions"].dtype == box["future_yaws"].dtype == np.float16
            assert box["future_positions"].shape == (len(box["future_yaws"]), 2)
    assert seen == {"ego_car", "car", "walker", "static", "static_prop_car", "traffic_light", "stop_sign"}


def test_boxes_go_by_distance_after_the_ego(frames: list) -> None:
    for frame in frames:
        assert frame.boxes[0]["class"] == "ego_car"
        distances = [box["distance"] for box in frame.boxes[1:]]
        assert distances == sorted(distances)
