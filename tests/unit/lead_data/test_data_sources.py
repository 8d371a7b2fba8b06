"""NavSim and Waymo-E2E are read from their own files, in CARLA's frame, and damaged or foreign trees are named."""

import gzip
import json
import pickle
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch

from lead_testing.on_demand_cache import OnDemandCache
from lead_trainer.contract.raw_data import SampleKey
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.example_worlds.lead.real_sets import write_navsim_tree, write_waymo_tree
from lead_trainer.recipes.lead.config_values import load_config
from lead_trainer.recipes.lead.data_sources import NAVSIM, WAYMO
from lead_trainer.recipes.lead.dataset_collate import collate
from lead_trainer.recipes.lead.dataset_mix import open_samples
from lead_trainer.recipes.lead.dataset_real import RealSamples
from lead_trainer.recipes.lead.ingest.torch_pickle import read_gzip_pickle
from lead_trainer.recipes.lead.losses import compute_losses, loss_weights
from lead_trainer.recipes.lead.model import build_model
from lead_trainer.recipes.lead.preparation import LeadPreparation
from lead_trainer.recipes.lead.recipe import on_device
from lead_trainer.recipes.lead.validation import evaluate

PICTURE = (64, 480)
BOTH = ["full_posttrain", "full_pretrain"]


@pytest.fixture(scope="module")
def navsim_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("navsim")
    write_navsim_tree(root, logs=2, tokens=3, size=PICTURE)
    return root


@pytest.fixture(scope="module")
def waymo_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("waymo")
    write_waymo_tree(root, sequences=2, frames=5, size=(96, 288))
    return root


@cache
def waymo_values() -> dict[str, Any]:
    small = load_config({}, "demo_navsim").model_dump(exclude_defaults=True)
    kept = ("image_architecture", "lidar_architecture", "n_layer", "bev_features_chanels", "bb_input_channel",
            "transfuser_token_dim", "transfuser_num_bev_cross_attention_layers", "pixels_per_meter")  # fmt: skip
    return {**{key: small[key] for key in kept}, "image_height": 96, "image_width": 288, "batch_size": 2}


def first_files(tree: Path, name: str) -> Path:
    return sorted(tree.rglob(name))[0]


def test_a_navsim_sample_is_the_file_in_carlas_frame(navsim_tree: Path) -> None:
    config = load_config({"use_planning_decoder": True, "compat": {"phantom_padded_boxes": True}}, "demo_navsim")
    samples = RealSamples(config, OnDemandCache(navsim_tree, {"preset": "demo_navsim"}, BOTH), NAVSIM)
    assert len(samples) == 6
    feature, target = (
        pickle.loads(gzip.decompress(first_files(navsim_tree, f"transfuser_{part}.gz").read_bytes()))
        for part in ("feature", "target")
    )
    sample = samples.load(0, 0)
    decoded = cv2.imdecode(np.asarray(feature["camera_feature"]), cv2.IMREAD_COLOR)
    np.testing.assert_array_equal(sample["rgb"], decoded)  # the cache swaps red and blue
    trajectory = target["trajectory"].numpy().astype(np.float64)
    np.testing.assert_allclose(sample["future_waypoints"], trajectory[:, :2] * [1, -1])
    np.testing.assert_allclose(sample["future_yaws"], -trajectory[:, 2])
    status = feature["status_feature"].numpy()
    np.testing.assert_allclose(sample["command"], status[:4])
    assert sample["speed"] == pytest.approx(np.linalg.norm(status[4:6]))
    assert sample["acceleration"] == pytest.approx(np.linalg.norm(status[6:8]))
    turned = np.rot90(target["bev_semantic_map"].numpy(), 1)
    np.testing.assert_array_equal(sample["navsim_bev_semantic"], turned[::2, ::2])  # 2 pixels a metre here, 4 there
    boxes = target["agent_states"].numpy()[target["agent_labels"].numpy()]
    inside = boxes[(np.abs(boxes[:, 0]) < 32) & (np.abs(boxes[:, 1]) < 32)]
    rows = sample["navsim_center_net_bounding_boxes"][: len(inside)]
    expected = np.stack(
        [(inside[:, 0] + 32) * 2, (-inside[:, 1] + 32) * 2, inside[:, 3], inside[:, 4], -inside[:, 2]], 1
    )
    np.testing.assert_allclose(rows[:, :5], expected, rtol=1e-5)
    assert not sample["navsim_center_net_bounding_boxes"][len(inside) :].any()
    assert sample["navsim_center_net_heatmap"].shape == (1, config.bev_grid_height, config.bev_grid_width)
    assert "semantic" not in sample and "bev_semantic" not in sample and "depth" not in sample


def test_a_waymo_sample_is_the_file_in_carlas_frame(waymo_tree: Path) -> None:
    values = {**waymo_values(), "use_planning_decoder": True}
    config = load_config(values, "waymo")
    samples = RealSamples(config, OnDemandCache(waymo_tree, {**values, "preset": "waymo"}, BOTH), WAYMO)
    document = json.loads(gzip.decompress(first_files(waymo_tree, "*.json.gz").read_bytes()))
    sample = samples.load(0, 0)
    bgr = cv2.imdecode(np.frombuffer(first_files(waymo_tree, "*.jpg").read_bytes(), np.uint8), cv2.IMREAD_COLOR)
    np.testing.assert_array_equal(sample["rgb"], bgr[:, :, ::-1])
    future = np.array([document["prediction"]["x"], document["prediction"]["y"]]).T[::2] * [1, -1]
    np.testing.assert_allclose(sample["future_waypoints"], future)
    assert sample["future_waypoints"].shape == (10, 2)
    past = np.array([document["past"]["x"], document["past"]["y"]]).T[-7:-1] * [1, -1]
    np.testing.assert_allclose(sample["past_positions"], past)
    assert sample["past_speeds"].shape == (6, 1)
    assert sample["command"].tolist() == [0, 1, 0, 0]


def test_what_raters_said_of_a_waymo_frame_is_scored_in_validation(tmp_path: Path) -> None:
    write_waymo_tree(tmp_path, sequences=2, frames=2, size=(96, 288))
    judged = sorted(tmp_path.rglob("*.json.gz"))[0]
    document = json.loads(gzip.decompress(judged.read_bytes()))
    points = np.array([document["prediction"]["x"], document["prediction"]["y"]])
    short, unjudged = points[:, :12], np.zeros((2, 0))
    document["preferences"] = [
        {"pos_x": x.tolist(), "pos_y": y.tolist(), "preference_score": score}
        for (x, y), score in ((points, 9.0), (short, 6.0), (unjudged, -1.0))
    ]
    judged.write_bytes(gzip.compress(json.dumps(document).encode()))
    values = {**waymo_values(), "use_planning_decoder": True}
    config = load_config(values, "waymo")
    samples = RealSamples(config, OnDemandCache(tmp_path, {**values, "preset": "waymo"}, BOTH), WAYMO)
    sample = samples.load(0, 0)
    np.testing.assert_allclose(sample["rated_trajectories"][0], points.T * [1, -1])
    np.testing.assert_allclose(sample["rated_trajectories"][1, 11:], np.tile(short[:, -1] * [1, -1], (9, 1)))
    assert sample["ratings"].tolist() == [9, 6, 6]
    assert samples.load(1, 0)["ratings"].tolist() == [-1, -1, -1]
    batch = on_device(collate([samples.load(index, 0) for index in range(4)]), config)
    predictions = build_model(config).eval()(batch)
    assert predictions.plan is not None
    as_driven = replace(predictions, plan=replace(predictions.plan, future_waypoints=batch["future_waypoints"].float()))
    total, count = evaluate(config, as_driven, batch).totals["rfm"]
    assert (float(total), int(count)) == (9, 1)


@pytest.mark.parametrize("preset", ["demo_navsim", "waymo"])
@pytest.mark.parametrize("planner", [False, True])
def test_a_network_trains_on_a_real_set_alone(preset: str, planner: bool, navsim_tree: Path, waymo_tree: Path) -> None:
    tree, values = (navsim_tree, {}) if preset == "demo_navsim" else (waymo_tree, waymo_values())
    values = {**values, "use_planning_decoder": planner}
    config = load_config(values, preset)
    samples = open_samples(config, {"real": OnDemandCache(tree, {**values, "preset": preset}, BOTH)})
    batch = on_device(collate([samples.load(int(index), 0) for index in samples.epoch_draw(0)[:2]]), config)
    torch.manual_seed(0)
    model = build_model(config)
    if preset == "waymo" and not planner:
        with pytest.raises(BadConfig, match="labels nothing but waypoints"):
            compute_losses(config, model(batch), batch)
        return
    report = compute_losses(config, model(batch), batch)
    assert sum(report.weights.values()) == pytest.approx(1.0)
    report.total.backward()  # type: ignore[no-untyped-call]
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    expected = {"loss_spatio_temporal_waypoints"} if planner else set()
    if preset == "demo_navsim":
        parts = ("heatmap", "wh", "offset", "yaw_class", "yaw_res", "velocity")
        expected |= {"navsim_loss_bev_semantic", *(f"navsim_loss_center_net_{part}" for part in parts)}
    assert set(report.raw) == expected


def test_weights_of_a_mixed_stage_are_leads() -> None:
    # Read off LEAD's detailed_loss_weights: 5 box terms and 1 map term a data set, and CARLA's semantics.
    config = load_config({}, "carla_navsim")
    weights = {key: round(13 * weight, 9) for key, weight in loss_weights(config).items()}
    assert {key for key, weight in weights.items() if weight == 1} == {
        "loss_semantic", "loss_bev_semantic", "navsim_loss_bev_semantic",
        *(f"{prefix}loss_center_net_{part}" for prefix in ("", "navsim_")
          for part in ("heatmap", "wh", "offset", "yaw_class", "yaw_res")),
    }  # fmt: skip
    assert sum(weights.values()) == 13


def rewrite(path: Path, content: Any) -> bytes:
    before = path.read_bytes()
    path.write_bytes(gzip.compress(pickle.dumps(content)))
    return before


class Command:
    def __reduce__(self) -> Any:
        return (print, ("this must never run",))


HOSTILE = {
    "code": (Command(), "which is no plain data"),
    "list": ([1, 2], "has no camera_feature"),
    "missing": ({"camera_feature": b"x"}, "has no status_feature"),
    "status": ({"camera_feature": b"x", "status_feature": torch.zeros(7)}, r"status_feature has shape \(7,\)"),
    "nan": ({"camera_feature": b"x", "status_feature": torch.full((8,), torch.nan)}, "expected 8 finite numbers"),
    "picture": ({"camera_feature": b"x", "status_feature": torch.zeros(8)}, "is not a valid picture"),
}


@pytest.mark.parametrize("case", sorted(HOSTILE))
def test_a_bad_navsim_feature_is_named(case: str, navsim_tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, message = HOSTILE[case]
    preparation, tree = LeadPreparation(), FolderTree(navsim_tree)
    keys = preparation.config_keys({"preset": "demo_navsim"})
    path = first_files(navsim_tree, "transfuser_feature.gz")
    before = rewrite(path, content)
    try:
        scan = preparation.scan(tree, keys, BOTH)
        with pytest.raises(BadData, match=rf"transfuser_feature\.gz.*{message}"):
            preparation.record(tree, keys, scan.samples[0])
    finally:
        path.write_bytes(before)
    assert "never run" not in capsys.readouterr().out


@pytest.mark.parametrize("keep", [0, 3, 40, -5])
def test_a_truncated_feature_is_named(keep: int, navsim_tree: Path) -> None:
    data = first_files(navsim_tree, "transfuser_feature.gz").read_bytes()
    with pytest.raises(BadData, match=r"file a/b\.gz is not a valid gzip pickle"):
        read_gzip_pickle(data[:keep], "a/b.gz")


def test_a_token_without_target_is_named(tmp_path: Path) -> None:
    write_navsim_tree(tmp_path, logs=1, tokens=2, size=PICTURE)
    first_files(tmp_path, "transfuser_target.gz").unlink()
    preparation = LeadPreparation()
    with pytest.raises(BadData, match=r"transfuser_feature\.gz lacks its partner \(1 such files\)"):
        preparation.scan(FolderTree(tmp_path), preparation.config_keys({"preset": "demo_navsim"}), BOTH)


def test_a_tree_of_another_kind_is_refused(waymo_tree: Path) -> None:
    preparation = LeadPreparation()
    with pytest.raises(BadData, match=r"holds no transfuser_feature\.gz of NavSim"):
        preparation.scan(FolderTree(waymo_tree), preparation.config_keys({"preset": "demo_navsim"}), BOTH)


def test_collections_of_carla_are_refused_for_navsim(navsim_tree: Path) -> None:
    preparation = LeadPreparation()
    with pytest.raises(BadConfig, match="found 'failed', which only CARLA has"):
        preparation.scan(FolderTree(navsim_tree), preparation.config_keys({"preset": "demo_navsim"}), ["failed"])


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "KeyError"),
        ({"past": {"x": [1], "y": [1], "vx": [1], "vy": [1]}, "command": 4}, "command 4, expected 0..3"),
        ({"past": {"x": [1, 2], "y": [1], "vx": [1], "vy": [1]}, "command": 0}, "not a measurement"),
        ({"past": {"x": [], "y": [], "vx": [], "vy": []}, "command": 0}, "expected finite points"),
        (
            {
                "past": {"x": [1], "y": [1], "vx": [1], "vy": [1]},
                "command": 0,
                "preferences": [{"preference_score": 1, "pos_x": [], "pos_y": []}],
            },
            "not a measurement",
        ),
    ],
)
def test_a_bad_measurement_is_named(document: Any, message: str, waymo_tree: Path) -> None:
    preparation, tree = LeadPreparation(), FolderTree(waymo_tree)
    keys = preparation.config_keys({**waymo_values(), "preset": "waymo"})
    path = first_files(waymo_tree, "*.json.gz")
    before = path.read_bytes()
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    try:
        with pytest.raises(BadData, match=rf"0000\.json\.gz.*{message}"):
            preparation.record(tree, keys, preparation.scan(tree, keys, BOTH).samples[0])
    finally:
        path.write_bytes(before)


def test_waymo_files_side_by_side_are_paired_too(tmp_path: Path) -> None:
    write_waymo_tree(tmp_path / "two", sequences=2, frames=2, size=(96, 288))
    for path in sorted((tmp_path / "two").rglob("*.*")):
        if path.is_file():
            folder = tmp_path / "one" / path.parts[-3]
            folder.mkdir(parents=True, exist_ok=True)
            path.rename(folder / path.name)
    preparation = LeadPreparation()
    keys = preparation.config_keys({**waymo_values(), "preset": "waymo"})
    scan = preparation.scan(FolderTree(tmp_path / "one"), keys, BOTH)
    assert [key.frame for key in scan.samples] == [0, 1, 0, 1] and len(scan.verdicts) == 2


def test_every_key_of_a_real_sets_digest_is_read(navsim_tree: Path) -> None:
    preparation = LeadPreparation()
    base = preparation.config_keys({"preset": "demo_navsim"})
    assert base == {"source_dataset": "navsim", "image_height": 64, "image_width": 480}
    assert preparation.config_keys({"preset": "demo_navsim", "use_planning_decoder": True, "max_num_bbs": 5}) == base
    record = preparation.record(FolderTree(navsim_tree), base, SampleKey(*_first(navsim_tree)))
    assert set(record) == {"image", "planes", "arrays"}


def _first(tree: Path) -> tuple[str, int]:
    return first_files(tree, "transfuser_feature.gz").relative_to(tree).parts[0], 0


def test_a_cache_of_several_sets_must_say_which() -> None:
    with pytest.raises(BadConfig, match="source_dataset: not set, but the config uses carla, navsim"):
        LeadPreparation().config_keys({"preset": "carla_navsim"})
    keys = LeadPreparation().config_keys({"preset": "carla_navsim", "source_dataset": "navsim"})
    assert keys == {"source_dataset": "navsim", "image_height": 270, "image_width": 1920}
