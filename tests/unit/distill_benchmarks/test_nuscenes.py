"""nuScenes prediction: tables become rasters and targets, the challenge's kit reads the same, submissions are valid."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lead_testing import REFERENCE
from lead_testing.forecasting_trees import NUSCENES_LOCATION
from lead_testing.oracles import ask
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.recipes.distill.benchmarks.agent_frame import AgentFrame
from lead_trainer.recipes.distill.benchmarks.baselines import Kinematics, constant_velocity_heading, physics_oracle
from lead_trainer.recipes.distill.benchmarks.evaluation import truth_of
from lead_trainer.recipes.distill.benchmarks.forecasts import AgentForecast
from lead_trainer.recipes.distill.benchmarks.nuscenes.dataset import NuscenesSamples
from lead_trainer.recipes.distill.benchmarks.nuscenes.encoder import RasterEncoder
from lead_trainer.recipes.distill.benchmarks.nuscenes.map_layers import read_city_map
from lead_trainer.recipes.distill.benchmarks.nuscenes.preparation import NuscenesPreparation
from lead_trainer.recipes.distill.benchmarks.nuscenes.raster import AGENT_COLOUR, View, corners, draw_agents
from lead_trainer.recipes.distill.benchmarks.nuscenes.splits import split_of
from lead_trainer.recipes.distill.benchmarks.nuscenes.submission import submission
from lead_trainer.recipes.distill.benchmarks.nuscenes.tables import read_tables
from lead_trainer.recipes.distill.config import DistillConfig
from lead_trainer.recipes.distill.config_values import load_config

PREPARATION = NuscenesPreparation()
VALUES = {"model": "baseline", "benchmark": "nuscenes", "input_type": "raster", "model_size": "tiny",
          "nuscenes_version": "v1.0-mini", "raster_pixels": 64, "raster_metres_per_pixel": 0.5}  # fmt: skip

QUESTION = """
import json
import numpy as np
from pyquaternion import Quaternion
from nuscenes import NuScenes
from nuscenes.eval.common.utils import quaternion_yaw
from nuscenes.eval.prediction.data_classes import Prediction
from nuscenes.map_expansion.arcline_path_utils import pose_at_length
from nuscenes.map_expansion.map_api import NuScenesMap
from nuscenes.prediction import PredictHelper
from nuscenes.prediction.models.physics import ConstantVelocityHeading, PhysicsOracle
from nuscenes.utils.splits import train, val, mini_train, mini_val
answer = {"splits": {"train": train[200:], "train_val": train[:200], "val": val},
          "mini": {"train": mini_train, "val": mini_val}}
nusc = NuScenes("v1.0-mini", question["tree"], verbose=False)
helper = PredictHelper(nusc)
agents = answer["agents"] = []
for token in question["tokens"]:
    instance, sample = token.split("_")
    annotation = helper.get_sample_annotation(instance, sample)
    agents.append({"future": helper.get_future_for_agent(instance, sample, 6, in_agent_frame=False).tolist(),
        "past": helper.get_past_for_agent(instance, sample, 2, in_agent_frame=False).tolist(),
        "constant_velocity": ConstantVelocityHeading(6, helper)(token).prediction[0].tolist(),
        "physics_oracle": PhysicsOracle(6, helper)(token).prediction[0].tolist(),
        "yaw": quaternion_yaw(Quaternion(annotation["rotation"]))})
city = NuScenesMap(question["tree"], question["location"])
answer["mask"] = city.get_map_mask((100, 100, 100, 120), 0, ["drivable_area"], (1000, 1200))[0]
answer["mask"] = np.packbits(answer["mask"]).tobytes().hex()
answer["lane"] = [pose_at_length(city.arcline_path_3["lane0"][0], length) for length in question["lengths"]]
entries = [Prediction.deserialize(entry) for entry in json.loads(question["submission"])]
answer["submission"] = [[entry.instance, entry.sample, entry.number_of_modes] for entry in entries]
if question["real"]:
    real = NuScenes("v1.0-mini", question["real"], verbose=False)
    answer["real"] = {a["token"]: [a["instance_token"], a["category_name"], *a["translation"][:2],
        quaternion_yaw(Quaternion(a["rotation"])), real.get_box(a["token"]).bottom_corners()[:2].T.tolist()]
        for a in real.sample_annotation}
"""


def config(**values: Any) -> DistillConfig:
    return load_config({**VALUES, **values})


@pytest.fixture(scope="module")
def cache(nuscenes_tree: Path, build_cache: Callable[..., Any]) -> Any:
    return build_cache(PREPARATION, nuscenes_tree, ["train", "val"], VALUES)


@pytest.fixture(scope="module")
def agents(cache: Any) -> list[dict[str, Any]]:
    samples = NuscenesSamples(config(), cache, "train")
    return [samples.load(index, 0) for index in range(len(samples))]


@pytest.fixture(scope="module")
def said(nuscenes_tree: Path, agents: list[dict[str, Any]]) -> Any:
    """Everything the kit is asked, in one process."""
    real = REFERENCE / "realdata/nuscenes/nuscenes_format_onesample"
    forecasts = [AgentForecast(a["sample"], a["instance"], np.zeros((6, 12, 2)), np.full(6, 1 / 6)) for a in agents]
    question = {
        "tree": str(nuscenes_tree),
        "location": NUSCENES_LOCATION,
        "tokens": [f"{agent['instance']}_{agent['sample']}" for agent in agents],
        "lengths": [0.5, 9.9, 15.0, 29.4],
        "submission": submission(forecasts).decode(),
        "real": str(real) if real.is_dir() else "",
    }
    return ask(QUESTION, question)


def frame_of(agent: dict[str, Any]) -> AgentFrame:
    return AgentFrame(*agent["pose"])


def test_d_43_twelve_points_at_two_hertz_and_two_seconds_of_past_in_the_agents_frame(
    agents: list[dict[str, Any]], said: Any
) -> None:
    assert len(agents) == 2 * 2 * 4  # training scenes, vehicles with a whole future, keyframes
    for agent, theirs in zip(agents, said["agents"], strict=True):
        assert agent["target_xy"].shape == (12, 2) and agent["target_valid"].all()
        np.testing.assert_allclose(frame_of(agent).points_out(agent["target_xy"]), theirs["future"], atol=1e-4)
        past = np.array(theirs["past"]).reshape(-1, 2)[::-1]
        assert agent["history_seen"].sum() == len(past) + 1
        np.testing.assert_allclose(
            frame_of(agent).points_out(agent["history"][agent["history_seen"], :2])[:-1], past, atol=1e-4
        )
        np.testing.assert_allclose(agent["history"][-1], [0, 0, 0, 1], atol=1e-7)
        assert agent["pose"][2] == pytest.approx(theirs["yaw"], abs=1e-9)


def test_d_45_the_physics_baselines_equal_those_of_the_kit(agents: list[dict[str, Any]], said: Any) -> None:
    batch = {key: torch.from_numpy(np.stack([agent[key] for agent in agents])) for key in
             ("kinematics", "target_xy", "target_valid")}  # fmt: skip
    state = Kinematics.of(batch["kinematics"])
    straight, oracle = constant_velocity_heading(state, 12, 0.5), physics_oracle(state, truth_of(batch), 0.5)
    assert sum(agent["kinematics"][1] != 0 for agent in agents) > 5
    for number, (agent, theirs) in enumerate(zip(agents, said["agents"], strict=True)):
        for path, name in ((straight, "constant_velocity"), (oracle, "physics_oracle")):
            ours = frame_of(agent).points_out(path[number].numpy())
            np.testing.assert_allclose(ours, theirs[name], atol=1e-6, err_msg=name)


def test_splits_equal_those_of_the_challenge(said: Any) -> None:
    for split, scenes in said["splits"].items():
        assert [scene for scene in scenes if split_of(scene, "v1.0-trainval") != split] == []
    for split, scenes in said["mini"].items():
        assert [scene for scene in scenes if split_of(scene, "v1.0-mini") != split] == []


def test_d_45_the_drivable_area_is_the_kits_pixel_by_pixel(nuscenes_tree: Path, said: Any) -> None:
    city = read_city_map(FolderTree(nuscenes_tree), NUSCENES_LOCATION)
    rows, columns = np.mgrid[500:1500, 400:1600]
    ours = city.drivable_at()(rows, columns)
    theirs = np.unpackbits(np.frombuffer(bytes.fromhex(said["mask"]), np.uint8)).reshape(1000, 1200)
    np.testing.assert_array_equal(ours, theirs > 0)
    outside = city.drivable_at()(np.array([-1, 0, 99999]), np.array([0, -1, 0]))
    assert ours.any() and not ours.all() and not outside.any()


def test_lanes_follow_the_kits_arcs(nuscenes_tree: Path, said: Any) -> None:
    (lane,) = read_city_map(FolderTree(nuscenes_tree), NUSCENES_LOCATION).lanes
    for pose in said["lane"]:
        ahead = np.linalg.norm(lane[:, :2] - pose[:2], axis=1)
        assert ahead.min() < 0.51  # points are a metre apart
        assert abs(lane[ahead.argmin(), 2] - pose[2]) < 0.06


def test_d_43_the_challenges_own_reader_takes_the_submission(agents: list[dict[str, Any]], said: Any) -> None:
    assert said["submission"] == [[agent["instance"], agent["sample"], 6] for agent in agents]


@pytest.mark.parametrize(
    ("modes", "probabilities", "message"),
    [((26, 12, 2), [1 / 26] * 26, "shape"), ((1, 13, 2), [1.0], "shape"), ((2, 12, 2), [0.5, 0.4], "sum 1")],
)
def test_a_forecast_that_breaks_the_challenges_rules_is_refused(
    modes: tuple[int, ...], probabilities: list[float], message: str
) -> None:
    with pytest.raises(BadData, match=message):
        submission([AgentForecast("s", "i", np.zeros(modes), np.array(probabilities))])


def test_tables_of_another_version_are_named_with_the_key_that_reads_them(nuscenes_tree: Path) -> None:
    told = "nuscenes_version: found 'v1.0-trainval', but the tree has v1.0-mini; set nuscenes_version=v1.0-mini"
    with pytest.raises(BadConfig, match=told):
        read_tables(FolderTree(nuscenes_tree), "v1.0-trainval")


def test_the_real_keyframe_reads_as_the_kit_reads_it(real_nuscenes: Path, said: Any) -> None:
    tables = read_tables(FolderTree(real_nuscenes), "v1.0-mini")
    assert set(tables.annotations) == set(said["real"]) and len(tables.annotations) == 69
    for token, (instance, category, x, y, yaw, bottom) in said["real"].items():
        annotation = tables.annotations[token]
        assert (annotation.instance, tables.category[instance]) == (instance, category)
        np.testing.assert_allclose([annotation.x, annotation.y, annotation.yaw], [x, y, yaw], atol=1e-9)
        leans = np.hypot(*np.subtract(bottom[0], bottom[2])) - np.hypot(annotation.width, annotation.length)
        if abs(leans) < 1e-3:
            ours = sorted(map(tuple, np.round(corners(annotation), 2)))
            np.testing.assert_allclose(ours, sorted(map(tuple, np.round(bottom, 2))), atol=0.05)
    target = next(a for a in tables.annotations.values() if tables.category[a.instance] == "vehicle.car")
    picture = np.zeros((224, 224, 3), np.uint8)
    draw_agents(picture, View(AgentFrame(target.x, target.y, target.yaw), 224, 0.25), tables, target)
    assert picture[179, 112].tolist() == list(AGENT_COLOUR) and (picture.sum(-1) > 0).sum() > 1000


def test_d_40_the_raster_has_the_agent_heading_up_on_the_map(agents: list[dict[str, Any]], nuscenes_tree: Path) -> None:
    city = read_city_map(FolderTree(nuscenes_tree), NUSCENES_LOCATION)
    seen = 0
    for agent in agents:
        raster = agent["raster"]
        assert raster.shape == (3, 64, 64) and raster.dtype == np.uint8
        red = np.argwhere((raster == np.array(AGENT_COLOUR)[:, None, None]).all(0))
        assert abs(red.mean(0) - [64 * 0.8, 32]).max() < 1.5  # row, column
        assert np.ptp(red[:, 0]) > np.ptp(red[:, 1])  # longer ahead than across
        rows, columns = np.argwhere((raster == 255).all(0)).T  # drivable and nothing on it
        where = frame_of(agent).points_out(np.stack([64 * 0.8 - rows, 32 - columns], axis=1) * 0.5)
        pixels = (where * 10).astype(int)
        if len(rows):
            seen += 1
            assert city.drivable_at()(pixels[:, 1], pixels[:, 0]).mean() > 0.9
    assert seen > 5


def test_an_agent_without_a_whole_future_is_counted_and_left_out(nuscenes_tree: Path) -> None:
    keys = PREPARATION.config_keys(VALUES)
    scan = PREPARATION.scan(FolderTree(nuscenes_tree), keys, ["train", "train_val", "val"])
    counters = {collection.name: dict(collection.counters) for collection in scan.collections}
    assert counters == {
        "train": {"agents": 24, "without_whole_future": 8},
        "train_val": {"agents": 0, "without_whole_future": 0},
        "val": {"agents": 12, "without_whole_future": 4},
    }
    assert {verdict.route: verdict.reason for verdict in scan.verdicts}["scene-0103"] == "kept"


@pytest.mark.parametrize(
    "missing",
    [
        "maps/prediction/prediction_scenes.json",
        f"maps/expansion/{NUSCENES_LOCATION}.json",
        "v1.0-mini/instance.json",
    ],
)
def test_a_missing_file_is_named(nuscenes_tree: Path, tmp_path: Path, missing: str) -> None:
    shutil.copytree(nuscenes_tree, tmp_path / "tree")
    (tmp_path / "tree" / missing).unlink()
    tree, keys = FolderTree(tmp_path / "tree"), PREPARATION.config_keys(VALUES)
    with pytest.raises(BadData, match=missing):
        scan = PREPARATION.scan(tree, keys, ["train"])
        PREPARATION.record(tree, keys, scan.samples[0])


def test_tables_that_do_not_fit_and_old_maps_are_refused(nuscenes_tree: Path, tmp_path: Path) -> None:
    shutil.copytree(nuscenes_tree, tmp_path / "tree")
    path = tmp_path / f"tree/maps/expansion/{NUSCENES_LOCATION}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": "1.0"}))
    with pytest.raises(BadData, match=r"version 1\.0, expected 1\.3"):
        read_city_map(FolderTree(tmp_path / "tree"), NUSCENES_LOCATION)
    (tmp_path / "tree/v1.0-mini/sample.json").write_text("[]")
    with pytest.raises(BadData, match="do not fit together"):
        read_tables(FolderTree(tmp_path / "tree"), "v1.0-mini")


def test_a_run_with_another_raster_than_the_cache_is_refused(cache: Any) -> None:
    with pytest.raises(BadConfig, match="raster_pixels: found 128, the cache has 64"):
        NuscenesSamples(config(raster_pixels=128), cache, "val")


def test_the_raster_encoder_gives_the_students_tokens(agents: list[dict[str, Any]]) -> None:
    chosen = config()
    batch = {key: torch.from_numpy(np.stack([agent[key] for agent in agents[:2]])) for key in
             ("raster", "history", "history_seen")}  # fmt: skip
    torch.manual_seed(0)
    encoder = RasterEncoder(chosen)
    tokens = encoder(batch)
    assert tokens.shape == (2, 49 + 5, chosen.size.width) and tokens.isfinite().all()
    tokens.sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())
