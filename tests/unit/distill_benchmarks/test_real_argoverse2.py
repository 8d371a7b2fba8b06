"""The real scenario and the real sensor log: read as `av2` reads them, and measured as `av2` measures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch

from lead_testing.oracles import ask
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.metrics.forecasting import metrics_at
from lead_trainer.recipes.distill.benchmarks.argoverse2.dataset import Argoverse2Samples
from lead_trainer.recipes.distill.benchmarks.argoverse2.drivable_area import drivable_area
from lead_trainer.recipes.distill.benchmarks.argoverse2.preparation import Argoverse2Preparation
from lead_trainer.recipes.distill.benchmarks.argoverse2.scenario import OBJECT_TYPES, read_scenario
from lead_trainer.recipes.distill.benchmarks.argoverse2.sensor_log import read_sensor_log
from lead_trainer.recipes.distill.benchmarks.argoverse2.vector_map import LINE_TYPES, read_vector_map, resampled
from lead_trainer.recipes.distill.benchmarks.baselines import Kinematics, constant_velocity, one_mode
from lead_trainer.recipes.distill.benchmarks.evaluation import truth_of
from lead_trainer.recipes.distill.config_values import load_config

NAME, LOG = "0a1e6f0a-1817-4a98-b02e-db8c9327d151", "7fab2350-7eaf-3b7e-a39d-6937a4c1bede"
VALUES = {"model": "baseline", "benchmark": "argoverse2", "input_type": "vector", "model_size": "tiny"}
PREPARATION = Argoverse2Preparation()
# Straight ways from the focal track's place in every direction, at walking speed for six seconds.
_ANGLE, _SPEED = np.meshgrid(np.arange(0, 2 * np.pi, 0.1), np.arange(0.1, 3.0, 0.2))
MODES = (
    np.stack([_SPEED * np.cos(_ANGLE), _SPEED * np.sin(_ANGLE)], -1).reshape(-1, 1, 2)
    * np.arange(0.1, 6.05, 0.1)[:, None]
)

QUESTION = """
from pathlib import Path
import numpy as np, pandas as pd
from av2.geometry.geometry import quat_to_mat
from av2.geometry.se3 import SE3
from av2.utils.io import read_city_SE3_ego
from av2.datasets.motion_forecasting.eval import metrics
from av2.datasets.motion_forecasting.scenario_serialization import load_argoverse_scenario_parquet
from av2.map.map_api import ArgoverseStaticMap, DrivableAreaMapLayer
folder = Path(question["scenario"])
scenario = load_argoverse_scenario_parquet(next(folder.glob("scenario_*.parquet")))
tracks = {track.track_id: {"type": track.object_type.value, "category": track.category.value, "states": [
    [s.timestep, *s.position, s.heading, *s.velocity] for s in track.object_states]} for track in scenario.tracks}
static_map = ArgoverseStaticMap.from_json(next(folder.glob("log_map_archive_*.json")))
lanes = [[lane.lane_type.value, bool(lane.is_intersection), static_map.get_lane_segment_centerline(n)[:, :2].tolist()]
         for n, lane in static_map.vector_lane_segments.items()]
areas = [area.xyz[:, :2].tolist() for area in static_map.vector_drivable_areas.values()]
edges = [edge.xyz[:, :2].tolist() for crossing in static_map.vector_pedestrian_crossings.values()
         for edge in (crossing.edge1, crossing.edge2)]
focal = np.array(tracks[scenario.focal_track_id]["states"])
times = np.arange(1, 61)[:, None] * 0.1
path, truth = focal[49, 1:3] + times * focal[49, 4:6], focal[50:110, 1:3]
answer = {"tracks": tracks, "lanes": lanes, "areas": areas, "edges": edges,
    "focal": scenario.focal_track_id, "constant_velocity": {
    "minADE_1": float(metrics.compute_ade(path[None], truth)[0]),
    "minFDE_1": float(metrics.compute_fde(path[None], truth)[0]),
    "MR_1": float(metrics.compute_is_missed_prediction(path[None], truth)[0]),
    "brier_minFDE_1": float(metrics.compute_brier_fde(path[None], truth, np.ones(1))[0])}}
road = DrivableAreaMapLayer.from_vector_data(list(static_map.vector_drivable_areas.values()))
answer["mask"] = road.array.astype(int).tolist()
modes = np.array(question["modes"]) + focal[49, 1:3]
answer["off_road"] = [bool((road.get_raster_values_at_coords(mode, 0) == 0).any()) for mode in modes]
log = Path(question["log"])
poses = read_city_SE3_ego(log)
cuboids = answer["cuboids"] = []
for _, row in pd.read_feather(log / "annotations.feather").iloc[::97].iterrows():
    rotation = quat_to_mat(row[["qw", "qx", "qy", "qz"]].to_numpy(float))
    city = poses[row.timestamp_ns].compose(SE3(rotation, row[["tx_m", "ty_m", "tz_m"]].to_numpy(float)))
    ahead = city.rotation @ np.array([1.0, 0.0, 0.0])
    cuboids.append([int(row.timestamp_ns), row.track_uuid, *city.translation[:2].tolist(),
                    float(np.arctan2(ahead[1], ahead[0]))])
"""


@pytest.fixture(scope="module")
def said(real_argoverse2: Path) -> Any:
    folder, log = real_argoverse2 / "val" / NAME, real_argoverse2 / "train" / LOG
    return ask(QUESTION, {"scenario": str(folder), "log": str(log), "modes": MODES.tolist()})


def test_the_real_scenario_reads_as_av2_reads_it(real_argoverse2: Path, said: Any) -> None:
    path = real_argoverse2 / "val" / NAME / f"scenario_{NAME}.parquet"
    scenario = read_scenario(path.read_bytes(), path.name)
    assert scenario.focal == said["focal"] and set(scenario.track_ids) == set(said["tracks"])
    for row, track in enumerate(scenario.track_ids):
        theirs = said["tracks"][track]
        states = np.array(theirs["states"])
        steps = states[:, 0].astype(int)
        assert np.flatnonzero(scenario.seen[row]).tolist() == steps.tolist()
        assert (OBJECT_TYPES[scenario.types[row]], scenario.categories[row]) == (theirs["type"], theirs["category"])
        ours = np.concatenate(
            [scenario.xy[row, steps], scenario.heading[row, steps, None], scenario.velocity[row, steps]], axis=1
        )
        np.testing.assert_array_equal(ours, states[:, 1:])


def test_the_real_map_reads_as_av2_reads_it(real_argoverse2: Path, said: Any) -> None:
    path = real_argoverse2 / "val" / NAME / f"log_map_archive_{NAME}.json"
    lines = read_vector_map(path.read_bytes(), path.name)
    kinds = [LINE_TYPES[line.kind] for line in lines]
    assert (kinds.count("crossing"), kinds.count("drivable_edge")) == (2 * 6, 2)
    lanes = [line for line in lines if LINE_TYPES[line.kind] not in ("crossing", "drivable_edge")]
    assert len(lanes) == len(said["lanes"]) == 71
    for line, (lane_type, crossed, midway) in zip(lanes, said["lanes"], strict=True):
        assert LINE_TYPES[line.kind] == f"{'intersection' if crossed else 'lane'}_{lane_type.lower()}"
        # av2 puts its centreline halfway between the boundaries, the file holds one of its own: nearly the same.
        apart = np.linalg.norm(resampled(line.points, 50) - resampled(np.array(midway), 50), axis=1)
        assert apart.max() < 1.0
    for kind, expected in (("crossing", said["edges"]), ("drivable_edge", said["areas"])):
        ours = [line.points.tolist() for line in lines if LINE_TYPES[line.kind] == kind]
        assert ours == expected


def test_d_45_constant_velocity_on_the_real_scenario_scores_as_av2_scores_it(
    real_argoverse2: Path, said: Any, build_cache: Callable[..., Any]
) -> None:
    cache = build_cache(PREPARATION, real_argoverse2, ["val"], VALUES)
    samples = Argoverse2Samples(load_config(VALUES), cache, "val")
    assert [samples.name(index) for index in range(len(samples))] == [f"val/{NAME}/138951 step 49"]
    sample = samples.load(0, 0)
    keys = ("target_xy", "target_valid", "kinematics")
    batch = {key: torch.from_numpy(np.asarray(sample[key])[None]) for key in keys}
    path = constant_velocity(Kinematics.of(batch["kinematics"]), 60, 0.1)
    ours = metrics_at(one_mode(path), truth_of(batch), 1)
    for tag, value in said["constant_velocity"].items():
        assert ours[tag].item() == pytest.approx(value, abs=1e-4), tag  # the record holds float32 metres


def test_d_45_ways_leave_the_real_drivable_area_where_av2_sees_them_leave(real_argoverse2: Path, said: Any) -> None:
    area = drivable_area(FolderTree(real_argoverse2, links_may_leave=True), f"val/{NAME}/{said['focal']}")
    theirs = np.array(said["mask"], np.uint8)  # drawn by Pillow, ours by OpenCV: they may differ along an outline
    outline = cv2.morphologyEx(theirs, cv2.MORPH_GRADIENT, np.ones((3, 3), np.uint8)) > 0
    assert area.mask.shape == theirs.shape and not ((area.mask != theirs) & ~outline).any()
    state = np.array(said["tracks"][said["focal"]]["states"])[49]
    ours = [area.off_road_rate(mode[None] + state[1:3]) for mode in MODES]
    assert ours == [float(left) for left in said["off_road"]] and 0.1 < np.mean(ours) < 0.9


def test_the_real_sensor_log_lies_in_the_city_where_av2_puts_it(real_argoverse2: Path, said: Any) -> None:
    folder = real_argoverse2 / "train" / LOG
    annotations, poses = (folder / name for name in ("annotations.feather", "city_SE3_egovehicle.feather"))
    scenario = read_sensor_log(annotations.read_bytes(), poses.read_bytes(), f"train/{LOG}")
    assert scenario.steps == 156 and scenario.seen.sum() == 11364
    times = sorted(set(times_of(annotations)))
    for timestamp, track, x, y, yaw in said["cuboids"]:
        row, step = scenario.track(track), times.index(timestamp)
        np.testing.assert_allclose(scenario.xy[row, step], [x, y], atol=1e-6)
        assert abs(np.exp(1j * scenario.heading[row, step]) - np.exp(1j * yaw)) < 1e-6
    lanes = read_vector_map(next((folder / "map").glob("log_map_archive_*.json")).read_bytes(), "map")
    assert len(lanes) > 50


def test_windows_over_all_tracks_of_the_real_data_are_samples(real_argoverse2: Path) -> None:
    scan = PREPARATION.scan(
        FolderTree(real_argoverse2, links_may_leave=True), PREPARATION.config_keys(VALUES), ["windows_train", "train"]
    )
    assert all(verdict.kept for verdict in scan.verdicts) and len(scan.verdicts) == 3
    counts = {collection.name: len(collection.buckets[0].samples) for collection in scan.collections}
    of_scenario = [key for key in scan.samples if NAME in key.route and key.route.startswith("train")]
    assert counts["train"] == 1 and len(of_scenario) >= 7 * 5
    log = [key for key in scan.samples if LOG in key.route]
    assert len(log) + len(of_scenario) == counts["windows_train"] and len(log) > 100
    for key in (log[0], log[-1], of_scenario[3]):
        assert PREPARATION.record(
            FolderTree(real_argoverse2, links_may_leave=True), PREPARATION.config_keys(VALUES), key
        )


def times_of(annotations: Path) -> list[int]:
    from pyarrow import feather

    return [int(value) for value in feather.read_table(annotations).column("timestamp_ns").to_pylist()]
