"""The training picture shows truth and prediction side by side, drawn from an example frame."""

import math
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.model import Predictions, build_model
from lead_trainer.recipes.lead.network.perception_heads import CenterNetMaps
from lead_trainer.recipes.lead.picture_panels import (
    BEV_COLOURS,
    BOX_COLOURS,
    NAVSIM_BEV_COLOURS,
    NAVSIM_BEV_NAMES,
    ROUTE_COLOUR,
    WAYPOINT_COLOUR,
)
from lead_trainer.recipes.lead.prepare_keys import PreparationKeys
from lead_trainer.recipes.lead.targets.boxes import SceneFacts, box_rows
from lead_trainer.recipes.lead.targets.label_classes import MAP_CLASSES
from lead_trainer.recipes.lead.targets.view import NORMAL
from lead_trainer.recipes.lead.visualize import draw_training_picture, write_picture

CONFIG = LeadConfig(
    image_architecture="test_resnet",
    lidar_architecture="test_resnet",
    image_height=96,
    image_width=288,
    n_layer=1,
    transfuser_token_dim=32,
    transfuser_num_bev_cross_attention_layers=1,
    radar_token_dim=32,
    radar_sine_features=16,
    radar_hidden_dim_tokenizer=64,
    radar_tf_dim_ff=64,
    radar_hidden_dim_decoder=64,
    radar_num_layers=1,
    use_planning_decoder=True,
)
BEV_LEFT, BEV_RIGHT = slice(0, 480), slice(480, 960)
VEHICLE_OF_NAVSIM = NAVSIM_BEV_NAMES.index("vehicle")
CAMERAS_AND_LABELS_HIGH = 384 + 192 + 192


@pytest.fixture(scope="module")
def batch(frames: list) -> dict[str, torch.Tensor]:
    frame = next(f for f in frames if f.number == 4 and "LeftTurn" in f.route.parent.name)
    meta, scene = frame.meta, SceneFacts(frame.meta["scenario"], frozenset(), False, False, True, False)
    rgb = cv2.cvtColor(cv2.resize(frame.image("rgb"), (288, 96), interpolation=cv2.INTER_AREA), cv2.COLOR_BGR2RGB)
    hdmap = np.array(MAP_CLASSES)[frame.image("hdmap")][48:208, 64:256].repeat(2, 0).repeat(2, 1)
    cloud = frame.lidar().xyz
    lidar = np.histogram2d(cloud[:, 1], cloud[:, 0], bins=(320, 384), range=((-40, 40), (-32, 64)))[0] > 0
    arrays = {
        "rgb": rgb.transpose(2, 0, 1),
        "rasterized_lidar": lidar[None].astype(np.float32),
        "radar": np.zeros((300, 5), np.float32),
        "semantic": frame.image("semantics")[::4, ::4],
        "depth": frame.image("depth").astype(np.float32) * 50 / 255,
        "bev_semantic": hdmap,
        "center_net_bounding_boxes": box_rows(frame.boxes, scene, NORMAL, PreparationKeys.of(CONFIG)),
        "radar_detections": np.array([[20.0, 3.0, 4.0, 1.0], [0.0, 0.0, 0.0, 0.0]], np.float32),
        "route": meta["route"][:10],
        "future_waypoints": meta["future_positions"][5:41:5, :2],
        "target_point": np.array([14.0, 1.0], np.float32),
        "target_point_previous": np.array([-3.0, 0.0], np.float32),
        "target_point_next": np.array([24.0, -8.0], np.float32),
        "speed": np.float32(meta["speed"]),
        "target_speed": np.float32(meta["target_speed"]),
        "brake": np.array(meta["brake"]),
        "command": np.eye(6, dtype=np.float32)[0],
    }
    return {key: torch.from_numpy(np.array(value, order="C"))[None] for key, value in arrays.items()}


@pytest.fixture(scope="module")
def untrained(batch: dict[str, torch.Tensor]) -> Predictions:
    torch.manual_seed(0)
    with torch.no_grad():
        return build_model(CONFIG).eval()({key: v.float() if key == "rgb" else v for key, v in batch.items()})


@pytest.fixture(scope="module")
def perfect(batch: dict[str, torch.Tensor], untrained: Predictions) -> Predictions:
    """What a network that has learnt everything would say."""
    plan = replace(
        untrained.plan,
        route=batch["route"],
        future_waypoints=batch["future_waypoints"],
        target_speed=batch["target_speed"],
    )
    semantic = torch.nn.functional.one_hot(batch["semantic"].long(), 10).permute(0, 3, 1, 2).float()
    bev = torch.nn.functional.one_hot(batch["bev_semantic"].long(), 13).permute(0, 3, 1, 2).float()
    return replace(
        untrained, semantic=semantic, depth=batch["depth"], bev_semantic=bev, center_net=_maps(batch), plan=plan
    )


def _maps(batch: dict[str, torch.Tensor]) -> CenterNetMaps:
    heat, wh, offset = torch.full((1, 8, 80, 96), -9.0), torch.zeros(1, 2, 80, 96), torch.zeros(1, 2, 80, 96)
    yaw_class, yaw_res, velocity = torch.zeros(1, 12, 80, 96), torch.zeros(1, 1, 80, 96), torch.zeros(1, 1, 80, 96)
    for x, y, w, h, yaw, speed, _, kind, _ in batch["center_net_bounding_boxes"][0].tolist():
        if w == 0:
            continue
        column, row = int(x // 4), int(y // 4)
        bin_width = math.pi / 6
        number = round(yaw / bin_width)
        heat[0, int(kind), row, column] = 9.0
        wh[0, :, row, column] = torch.tensor([w / 4, h / 4])
        offset[0, :, row, column] = torch.tensor([x / 4 - column, y / 4 - row])
        yaw_class[0, number % 12, row, column] = 1.0
        yaw_res[0, 0, row, column] = yaw - number * bin_width
        velocity[0, 0, row, column] = speed
    return CenterNetMaps(heat, wh, offset, yaw_class, yaw_res, velocity)


def test_a_picture_is_rgb_of_one_fixed_width(batch: dict[str, torch.Tensor], untrained: Predictions) -> None:
    picture = draw_training_picture(CONFIG, batch, untrained)
    assert picture.dtype == np.uint8
    assert picture.shape == (CAMERAS_AND_LABELS_HIGH + 576, 1152, 3)


def test_a_perfect_prediction_looks_like_the_truth(batch: dict[str, torch.Tensor], perfect: Predictions) -> None:
    picture = draw_training_picture(CONFIG, batch, perfect).astype(int)
    labels = picture[384 + 30 : CAMERAS_AND_LABELS_HIGH]
    titles = np.zeros(len(labels), bool)
    titles[160:195] = True
    assert np.array_equal(labels[~titles, :576], labels[~titles, 576:])
    bev = picture[CAMERAS_AND_LABELS_HIGH + 30 :]
    same = np.all(np.abs(bev[:, BEV_LEFT] - bev[:, BEV_RIGHT]) < 12, axis=-1)
    assert np.mean(same) > 0.95  # the truth also shows LiDAR points, target points and labelled radar detections


def test_an_untrained_prediction_does_not(batch: dict[str, torch.Tensor], untrained: Predictions) -> None:
    bev = draw_training_picture(CONFIG, batch, untrained).astype(int)[CAMERAS_AND_LABELS_HIGH + 30 :]
    assert np.mean(np.all(bev[:, BEV_LEFT] == bev[:, BEV_RIGHT], axis=-1)) < 0.8


def test_the_route_is_drawn_where_it_lies(batch: dict[str, torch.Tensor], perfect: Predictions) -> None:
    picture = draw_training_picture(CONFIG, batch, perfect)
    bev = picture[CAMERAS_AND_LABELS_HIGH:]
    for key, colour in (("route", ROUTE_COLOUR), ("future_waypoints", WAYPOINT_COLOUR)):
        x, y = batch[key][0, -1].tolist()
        column, row = round((y + 40) * 6), round((64 - x) * 6)
        for side in (BEV_LEFT, BEV_RIGHT):
            patch = bev[row - 3 : row + 4, side.start + column - 3 : side.start + column + 4].reshape(-1, 3)
            assert (patch == colour).all(axis=1).any(), key


def test_forward_is_up(batch: dict[str, torch.Tensor]) -> None:
    ahead = {**batch, "bev_semantic": torch.zeros_like(batch["bev_semantic"])}
    ahead["bev_semantic"][0, 200:240, 300:340] = 6
    for key in ("rasterized_lidar", "center_net_bounding_boxes"):
        ahead[key] = torch.zeros_like(batch[key])
    bev = draw_training_picture(CONFIG, ahead, None)[CAMERAS_AND_LABELS_HIGH:, BEV_LEFT]
    rows, columns = np.nonzero(np.all(bev == BEV_COLOURS[6], axis=-1))
    assert (rows.mean(), columns.mean()) == pytest.approx(((384 - 320) * 1.5, 220 * 1.5), abs=2)


def test_a_navsim_sample_shows_its_own_map_and_boxes_in_its_own_colours(
    batch: dict[str, torch.Tensor], untrained: Predictions
) -> None:
    crossing = torch.zeros_like(batch["bev_semantic"])
    crossing[0, 200:240, 300:340] = VEHICLE_OF_NAVSIM
    box = torch.zeros(1, 90, 9)
    box[0, 0, :4] = torch.tensor([100.0, 100.0, 12.0, 6.0])
    own = {
        "source_dataset": torch.tensor([2]),
        "navsim_bev_semantic": crossing,
        "navsim_center_net_bounding_boxes": box,
    }
    logits = torch.nn.functional.one_hot(crossing.long(), 7).permute(0, 3, 1, 2).float()
    maps = _maps({"center_net_bounding_boxes": box})
    heads = replace(untrained, bev_semantic_navsim=logits, center_net_navsim=maps, radar=None, plan=None)
    few = {key: batch[key] for key in ("rgb", "speed", "semantic", "bev_semantic", "center_net_bounding_boxes")}
    picture = draw_training_picture(CONFIG, {**few, **own}, heads)
    bev = picture[CAMERAS_AND_LABELS_HIGH:]
    for side in (bev[:, BEV_LEFT], bev[:, BEV_RIGHT]):
        for colour in (NAVSIM_BEV_COLOURS[VEHICLE_OF_NAVSIM], BOX_COLOURS[0]):
            assert np.all(side == colour, axis=-1).any()
    alone = draw_training_picture(CONFIG, {"rgb": batch["rgb"], "speed": batch["speed"], **own}, heads)
    assert np.array_equal(picture, alone)  # what fills CARLA's keys in a mixed batch is no truth


def test_heads_that_are_off_leave_their_panels_empty(batch: dict[str, torch.Tensor], untrained: Predictions) -> None:
    bare = replace(untrained, semantic=None, depth=None, bev_semantic=None, center_net=None, radar=None, plan=None)
    few = {key: batch[key] for key in ("rgb", "rasterized_lidar", "speed")}
    assert draw_training_picture(CONFIG, few, bare).shape == draw_training_picture(CONFIG, batch, untrained).shape


def test_a_picture_survives_its_file(tmp_path: Path, batch: dict[str, torch.Tensor], perfect: Predictions) -> None:
    picture = draw_training_picture(CONFIG, batch, perfect)
    write_picture(tmp_path / "step.png", picture)
    assert np.array_equal(cv2.imread(str(tmp_path / "step.png"))[..., ::-1], picture)
    assert [path.name for path in tmp_path.iterdir()] == ["step.png"]
