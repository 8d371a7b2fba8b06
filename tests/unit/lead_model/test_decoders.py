"""Boxes, speeds, matching and positions equal LEAD's on recorded cases."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from lead_testing import golden_model as golden
from lead_trainer.blocks.sine_position import embed_grid, embed_points
from lead_trainer.recipes.lead import decoders
from lead_trainer.recipes.lead.compat import Compat
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.config_values import load_config
from lead_trainer.recipes.lead.loss_terms.detection import gaussian_focal
from lead_trainer.recipes.lead.loss_terms.planning import two_hot
from lead_trainer.recipes.lead.loss_terms.radar import match, matching_cost, radar_loss
from lead_trainer.recipes.lead.metrics import average_displacement, final_displacement, heading_distance
from lead_trainer.recipes.lead.network.bev_points import sample_bev, unit_points, visible_bev
from lead_trainer.recipes.lead.network.perception_heads import CenterNetMaps

LEAD = LeadConfig(compat=Compat.lead())
HEADS = {"heatmap": (8, 0.9, 0), "wh": (2, 3, 0.2), "offset": (2, 1, 0), "yaw_class": (12, 2, -1)}
HEADS |= {"yaw_res": (1, 0.5, -0.25), "velocity": (1, 20, 0)}


@pytest.fixture(scope="module")
def recorded() -> Any:
    return golden.golden_json("decoders")


def head(name: str, batch: int = 2) -> torch.Tensor:
    channels, scale, shift = HEADS[name]
    values = golden.uniform(f"decode:{name}", 2, channels, 80, 96) * scale + shift
    return torch.from_numpy(values.astype(np.float32))[:batch]


def maps(heatmap: torch.Tensor) -> CenterNetMaps:
    rest = {name: head(name, len(heatmap)) for name in HEADS if name != "heatmap"}
    return CenterNetMaps(heatmap_logit=torch.logit(heatmap.double()), **rest)


def test_dense_boxes_equal_leads() -> None:
    want = golden.golden_arrays("decoders")
    boxes = decoders.decode_boxes(LEAD, maps(head("heatmap"))).numpy()
    np.testing.assert_allclose(boxes, want["decode_dense|image_system"], rtol=1e-5, atol=1e-5)
    metres = np.concatenate([decoders.confident(decoders.to_ego_frame(LEAD, sample), 0.3) for sample in boxes])
    np.testing.assert_allclose(metres, want["decode_dense|vehicle_system"], rtol=1e-5, atol=1e-5)


def test_sparse_boxes_equal_leads(recorded: Any) -> None:
    heatmap = head("heatmap", 1) * 0.05
    for class_index, row, column, score in recorded["decode_sparse"]["peaks_class_row_col_score"]:
        heatmap[0, int(class_index), int(row), int(column)] = score
    boxes = decoders.decode_boxes(LEAD, maps(heatmap))[0].numpy()
    np.testing.assert_allclose(boxes[:20], recorded["decode_sparse"]["image_system_top20"], rtol=1e-5, atol=2e-5)
    metres = decoders.confident(decoders.to_ego_frame(LEAD, boxes), LEAD.bb_confidence_threshold)
    want = recorded["decode_sparse"]["vehicle_system_before_nms"]
    np.testing.assert_allclose(metres, want, rtol=1e-5, atol=2e-5)


def test_overlap_and_suppression_equal_leads(recorded: Any) -> None:
    boxes = np.array(recorded["nms"]["boxes"], dtype=np.float64)
    overlap = [[decoders.rotated_iou(first, second) for second in boxes] for first in boxes]
    np.testing.assert_allclose(overlap, recorded["nms"]["iou_matrix"], atol=1e-7)
    for threshold in (0.2, 0.5):
        kept = decoders.non_maximum_suppression(boxes, threshold)
        np.testing.assert_allclose(kept, recorded["nms"][f"kept_iou{threshold}"], atol=1e-6)


def test_yaw_bins_decode_to_leads_angles(recorded: Any) -> None:
    for case in recorded["class2angle_12"]:
        angle = decoders.angle_of_class(torch.tensor(float(case["class"])), torch.tensor(case["residual"]), 12)
        assert math.cos(float(angle) - case["angle"]) == pytest.approx(1, abs=1e-9)


def test_two_hot_labels_equal_leads(recorded: Any) -> None:
    cases = recorded["two_hot"]
    speed, brake = (torch.tensor([case[key] for case in cases]) for key in ("speed", "brake"))
    labels = two_hot(LEAD, speed, brake)
    np.testing.assert_allclose(labels, [case["label"] for case in cases], atol=2e-6)


def test_target_speeds_equal_leads(recorded: Any) -> None:
    for case in recorded["ensemble_planning"]["cases"]:
        logits = torch.tensor(case["member_logits"])[:, None]
        speed = decoders.decode_target_speed(LEAD, logits)
        assert float(speed) == pytest.approx(case["target_speed_scalar"], rel=1e-6)


def test_focal_loss_equals_leads(recorded: Any) -> None:
    for case in recorded["gaussian_focal"]:
        loss = gaussian_focal(torch.tensor(case["pred"]), torch.tensor(case["target"]))
        assert float(loss) == pytest.approx(case["loss"], rel=1e-4, abs=1e-12)


def test_radar_matching_equals_leads(recorded: Any) -> None:
    want = golden.golden_arrays("decoders")
    predictions = torch.from_numpy(want["radar|pred"]).requires_grad_()
    labels = torch.from_numpy(want["radar|gt"])
    batch = {"source_dataset": torch.tensor([1, 1])}
    cost = matching_cost(LEAD, predictions, labels)
    np.testing.assert_allclose(cost.detach(), want["radar|cost"], rtol=1e-5, atol=1e-5)
    loss = radar_loss(LEAD, predictions, batch, labels)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == pytest.approx(recorded["radar_loss"]["loss"], rel=1e-6)
    assert predictions.grad is not None
    np.testing.assert_allclose(predictions.grad, want["radar|grad_pred"], atol=1e-7)
    nothing = radar_loss(LEAD, predictions, batch, torch.zeros_like(labels))
    assert nothing.item() == pytest.approx(recorded["radar_loss"]["loss_when_no_gt_valid"], rel=1e-6)
    assert match(LEAD, predictions, labels).shape == labels.shape


def test_bev_features_are_read_where_lead_reads_them(recorded: Any) -> None:
    case = recorded["bev_grid_sample"]
    bev = torch.from_numpy(golden.uniform("bev_sample:bev", 1, 3, 10, 12).astype(np.float32))
    points = torch.tensor(case["points_xy"])
    np.testing.assert_allclose(sample_bev(LEAD, bev, points), case["out"], atol=1e-5)
    straight = sample_bev(LeadConfig(compat=Compat.fixed()), bev, torch.tensor([[[64.0, -40.0]]]))
    np.testing.assert_allclose(straight[0, 0], bev[0, :, 0, 11])  # far ahead on the left: first row, last column


def test_cells_of_a_large_bev_map_are_found_in_half_precision_too() -> None:
    """bf16 has 8 bits for whole numbers: exact for a row or a column, not for their place in the flattened map."""
    bev = torch.arange(33 * 33, dtype=torch.float32).reshape(1, 1, 33, 33)
    rows = torch.arange(33.0)
    points = torch.stack((rows * 3 - 32, torch.full_like(rows, 37.5)), dim=-1)[None]  # a column of cells each
    read = sample_bev(LeadConfig(compat=Compat.fixed()), bev, points.bfloat16())
    np.testing.assert_array_equal(read[0, :, 0], bev[0, 0, 31])


def test_headings_are_measured_as_leads_tag_does() -> None:
    """LEAD passes headings (B, N) where it passes points (B, N, 2): the last axis is taken for coordinates."""
    prediction, label = torch.zeros(2, 4), torch.tensor([[0.3, 0.4, 0.0, 0.0], [0.1, 0.1, 0.1, 0.1]])
    assert heading_distance(prediction, label).item() == pytest.approx((0.5 + 0.2) / 2)


def test_sine_positions_equal_leads(recorded: Any) -> None:
    points = recorded["sine_embed_points"]
    ours = embed_points(torch.tensor(points["points01_xy"]), points["hidden_dim"])
    np.testing.assert_allclose(ours, points["out"], atol=1e-5)
    grid = recorded["sine_embed_grid"]
    ours = embed_grid(grid["h"], grid["w"], grid["num_pos_feats"])
    np.testing.assert_allclose(ours, grid["out"], atol=1e-5)
    unit = recorded["unit_normalize_bev_points"]
    np.testing.assert_allclose(unit_points(LEAD, torch.tensor(unit["in"]).float()), unit["out"], atol=1e-6)


@pytest.mark.parametrize("cameras", [1, 2, 3])
def test_the_visible_wedge_equals_leads(recorded: Any, cameras: int) -> None:
    used = [index < cameras for index in range(3)]
    visible = visible_bev(load_config({"used_cameras": used})).numpy()
    want = recorded["bev_frustum_mask_by_number_of_used_cameras"][str(cameras)]
    assert visible.sum() == want["valid_pixels"]
    assert visible.sum(axis=1)[::20].tolist() == want["valid_per_row_every_20"]
    assert visible.sum(axis=0)[::24].tolist() == want["valid_per_col_every_24"]


def test_displacements_equal_leads(recorded: Any) -> None:
    prediction = torch.ones(1, 8, 2).cumsum(dim=1)
    assert average_displacement(prediction, torch.zeros(1, 8, 2)).item() == pytest.approx(recorded["ade_fde"]["ade"])
    assert final_displacement(prediction, torch.zeros(1, 8, 2)).item() == pytest.approx(recorded["ade_fde"]["fde"])
