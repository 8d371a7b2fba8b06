"""What the network promises beyond LEAD's numbers: small presets, mixed precision, masks, weights from files."""

import hashlib
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save, save_file

from lead_protocol.store.folder import FolderStore
from lead_protocol.store.key_rules import UnsafeKey
from lead_testing.sample_batches import random_batch
from lead_trainer.blocks.fp32_norms import synchronise_norms
from lead_trainer.blocks.stages import load_backbone_weights
from lead_trainer.engine.step.optim import AdamWSettings, make_adamw
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.lead.compat import Compat
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.config_values import load_config
from lead_trainer.recipes.lead.losses import compute_losses, loss_weights, raw_weights
from lead_trainer.recipes.lead.metrics import compute_metrics
from lead_trainer.recipes.lead.model import Predictions, build_model


@pytest.fixture(autouse=True)
def repeatable(one_thread: None) -> None:
    torch.manual_seed(0)


def demo(**values: Any) -> LeadConfig:
    return load_config({"use_planning_decoder": True, **values}, "demo")


@pytest.mark.parametrize("planner", [False, True])
def test_the_demo_preset_learns_a_batch_and_trains_every_parameter(planner: bool) -> None:
    config = demo(use_planning_decoder=planner)
    model, batch = build_model(config).train(), random_batch(config)
    optimizer = make_adamw(model, AdamWSettings(lr=1e-3, weight_decay=0.0, amsgrad=True))
    totals = []
    for _ in range(6):
        report = compute_losses(config, model(batch), batch)
        optimizer.zero_grad()
        report.total.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        totals.append(report.total.item())
    assert totals[-1] < 0.9 * totals[0]
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


WAYMO = {"use_carla_data": False, "use_waymo_e2e_data": True, "LTF": True, "image_height": 96, "image_width": 288}


TOLD_NOTHING = dict.fromkeys(
    ("use_velocity", "use_discrete_command", "use_tp", "use_previous_tp", "use_next_tp", "use_radar_detection"), False
)
GRID = {"backbone.c5_conv", "backbone.up_conv5", "backbone.up_conv4"}
CONTEXT = "planning_decoder.planning_context_encoder"
UNREAD: dict[str, tuple[dict[str, Any], set[str]]] = {
    "no head reads the detection grid": ({"use_bev_semantic": False, "detect_boxes": False}, GRID),
    "Waymo as in LEAD": (WAYMO, GRID | {f"{CONTEXT}.past_positions_encoder", f"{CONTEXT}.past_speeds_encoder"}),
    "Waymo with its past": ({**WAYMO, "compat": Compat(unread_past=False)}, GRID),
    "a planner that is told nothing": (TOLD_NOTHING, {CONTEXT}),
}


@pytest.mark.parametrize("case", UNREAD)
def test_what_learns_has_a_gradient_and_what_nothing_reads_does_not_learn(case: str) -> None:
    values, unread = UNREAD[case]
    config = demo(**values)
    model, batch = build_model(config).train(), random_batch(config)
    compute_losses(config, model(batch), batch).total.backward()  # type: ignore[no-untyped-call]
    without = {name for name, parameter in model.named_parameters() if parameter.grad is None}  # DDP waits for all
    assert without == {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert {name.rpartition(".")[0] for name in without} == unread


def test_memory_format_does_not_change_predictions() -> None:
    outputs = []
    for channel_last in (False, True):
        torch.manual_seed(0)
        config = demo(channel_last=channel_last)
        with torch.no_grad():
            outputs.append(build_model(config).eval()(random_batch(config)))
    torch.testing.assert_close(outputs[0].semantic, outputs[1].semantic, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(outputs[0].plan.route, outputs[1].plan.route, rtol=1e-4, atol=1e-4)


def test_norms_and_losses_stay_in_fp32_under_bf16() -> None:
    config = demo()
    model, batch = build_model(config).train(), random_batch(config)
    seen: list[torch.dtype] = []
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d | torch.nn.LayerNorm):
            module.register_forward_hook(lambda _module, _inputs, output: seen.append(output.dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        predictions = model(batch)
        report = compute_losses(config, predictions, batch)
    assert predictions.autocast_dtype == torch.bfloat16
    assert predictions.semantic.dtype == torch.bfloat16
    assert set(seen) == {torch.float32}
    assert {loss.dtype for loss in report.raw.values()} == {torch.float32}
    report.total.backward()  # type: ignore[no-untyped-call]
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters() if parameter.grad is not None)


@pytest.mark.parametrize(("unmasked", "same"), [(False, True), (True, False)])
def test_padded_radar_points_are_read_only_in_compat_mode(unmasked: bool, same: bool) -> None:
    config = demo(compat=Compat(unmasked_radar_padding=unmasked))
    model, batch = build_model(config).eval(), random_batch(config)
    batch["radar"][:, 200:, :4] = 0
    fewer = {**batch, "radar": batch["radar"][:, :200]}
    with torch.no_grad():
        first, second = model(batch).radar.predictions, model(fewer).radar.predictions
    assert torch.allclose(first, second, atol=1e-4) is same


def test_without_any_radar_point_predictions_are_finite() -> None:
    config = demo()
    batch = random_batch(config)
    batch["radar"][..., :4] = 0
    with torch.no_grad():
        assert torch.isfinite(build_model(config).eval()(batch).radar.predictions).all()


def test_ltf_needs_no_lidar() -> None:
    config = demo(LTF=True)
    batch = random_batch(config)
    del batch["rasterized_lidar"]
    with torch.no_grad():
        predictions = build_model(config).eval()(batch)
    assert torch.isfinite(predictions.bev_semantic).all()
    assert loss_weights(config)["loss_center_net_velocity"] == 0


HEADS = ["use_semantic", "use_depth", "use_bev_semantic", "detect_boxes", "radar_detection"]


@pytest.mark.parametrize("head", HEADS)
def test_a_head_that_is_off_has_no_loss_and_no_weight(head: str) -> None:
    config = demo(**{head: False})
    batch = random_batch(config)
    report = compute_losses(config, build_model(config)(batch), batch)
    weights = loss_weights(config)
    assert set(report.raw) == {key for key, weight in weights.items() if weight > 0}
    assert sum(weights.values()) == pytest.approx(1)


def test_a_planner_that_is_not_told_of_radar_leaves_its_detector_to_learn() -> None:
    told, untold = demo(), demo(use_radar_detection=False)
    batch = random_batch(untold)
    predictions = build_model(untold)(batch)
    tokens = build_model(told)(batch).plan.context.shape[1]
    assert tokens - predictions.plan.context.shape[1] == told.num_radar_queries
    assert compute_losses(untold, predictions, batch).raw["radar_loss"] > 0
    assert loss_weights(untold) == loss_weights(told)


def test_the_planner_is_told_of_the_past_only_where_lead_is_mended() -> None:
    context = {}
    for unread in (True, False):
        torch.manual_seed(0)
        config = demo(**WAYMO, compat=Compat(unread_past=unread))
        model, batch = build_model(config).eval(), random_batch(config)
        encoder = model.planning_decoder.planning_context_encoder
        moved = {**batch, "past_positions": batch["past_positions"] + 1, "past_speeds": batch["past_speeds"] + 1}
        with torch.no_grad():
            before, after = (model(one).plan.context[:, -13:] for one in (batch, moved))
            speed = encoder.velocity_encoder((batch["speed"] / config.max_speed)[:, None, None])
        assert before.shape[1] == 1 + 2 * config.num_past_samples_used
        assert torch.equal(before, after) is unread
        context[unread] = before, speed + encoder.status_pos_embedding
    found, leads = context[True]  # LEAD adds its one token to every place
    torch.testing.assert_close(found, leads)


def test_a_past_beside_several_numbers_is_refused_where_lead_cannot_run() -> None:
    with pytest.raises(BadConfig, match=r"found 2 of them true.*keep one, or set compat\.unread_past to false"):
        demo(**WAYMO, use_discrete_command=True)
    demo(**WAYMO, use_discrete_command=True, compat=Compat(unread_past=False))
    demo(**WAYMO, use_discrete_command=True, use_past_positions=False, use_past_speeds=False)


def test_without_a_radar_detector_the_planner_is_told_nothing_of_radar() -> None:
    config = demo(radar_detection=False)
    assert build_model(config)(random_batch(config)).radar is None and not config.plans_with_radar


def test_a_planners_output_that_is_off_leaves_the_weights_of_the_other_losses() -> None:
    outputs = ("predict_temporal_spatial_waypoints", "predict_spatial_path", "predict_target_speed")
    for output in outputs:
        assert loss_weights(demo(**{output: False})) == loss_weights(demo())
    sums = [sum(raw_weights(demo(use_planning_decoder=planner)).values()) for planner in (False, True)]
    assert sums[1] - sums[0] == pytest.approx(3)


def changed_loss(key: str, change: Callable[[dict[str, torch.Tensor]], None], **compat: bool) -> tuple[float, float]:
    """Returns the raw loss `key` before and after `change` of the labels."""
    config = demo(compat=Compat(**compat), used_cameras=[False, True, False])
    batch = random_batch(config)
    with torch.no_grad():
        predictions: Predictions = build_model(config).eval()(batch)
    before = compute_losses(config, predictions, batch).raw[key].item()
    change(batch)
    return before, compute_losses(config, predictions, batch).raw[key].item()


def test_depth_labels_keep_their_decimals_unless_lead_is_asked_for() -> None:
    def floor(batch: dict[str, torch.Tensor]) -> None:
        batch["depth"] = batch["depth"].floor()

    before, after = changed_loss("loss_depth", floor)
    assert before != pytest.approx(after, rel=1e-4)
    before, after = changed_loss("loss_depth", floor, integer_depth_labels=True)
    assert before == after


@pytest.mark.parametrize("key", ["image_architecture", "lidar_architecture"])
def test_a_backbone_that_cannot_exchange_features_between_stages_is_refused(key: str) -> None:
    with pytest.raises(BadConfig, match=f"{key}: timm's 'efficientnet_b0' cannot be run stage by stage; .*resnet34"):
        build_model(demo(**{key: "efficientnet_b0"}))


def test_without_the_semantic_head_depth_is_learned_unless_lead_is_asked_for() -> None:
    for leads in (False, True):
        config = demo(use_semantic=False, compat=Compat(depth_with_semantic_alone=leads))
        batch = random_batch(config)
        model = build_model(config)
        report = compute_losses(config, model(batch), batch)
        assert ("loss_depth" in report.raw) is not leads
        assert report.weights["loss_depth"] > 0
        report.total.backward()
        assert [name for name, value in model.named_parameters() if value.grad is None] == []  # DDP waits for all


def test_bev_pixels_out_of_view_do_not_dilute_the_loss() -> None:
    clean, _ = changed_loss("loss_bev_semantic", lambda batch: None)
    torch.manual_seed(0)
    diluted, _ = changed_loss("loss_bev_semantic", lambda batch: None, diluted_bev_semantic=True)
    assert diluted < 0.5 * clean


@pytest.mark.parametrize(("unmasked", "same"), [(False, True), (True, False)])
def test_samples_without_radar_labels_enter_the_radar_loss_only_in_compat_mode(unmasked: bool, same: bool) -> None:
    config = demo(compat=Compat(unmasked_radar_loss=unmasked))
    batch = random_batch(config)
    batch["source_dataset"] = torch.tensor([1, 2])
    with torch.no_grad():
        predictions = build_model(config).eval()(batch)
    before = compute_losses(config, predictions, batch).raw["radar_loss"].item()
    batch["radar_detections"][1, :, 3] = 1 - batch["radar_detections"][1, :, 3]
    after = compute_losses(config, predictions, batch).raw["radar_loss"].item()
    assert (before == after) is same


def test_diverged_predictions_give_a_loss_that_is_not_a_number() -> None:
    config = demo()
    model, batch = build_model(config).eval(), random_batch(config)
    torch.nn.init.constant_(model.backbone.c5_conv.weight, float("nan"))
    torch.nn.init.constant_(model.get_parameter("radar_detector.q"), float("nan"))
    with torch.no_grad():
        predictions = model(batch)
    assert compute_losses(config, predictions, batch).total.isnan()
    assert compute_metrics(config, predictions, batch)["metric/radar_distance_error"].isnan()


def test_a_batch_without_perception_labels_costs_nothing_and_stays_finite() -> None:
    config = demo()
    batch = random_batch(config)
    batch["source_dataset"] = torch.tensor([2, 2])
    report = compute_losses(config, build_model(config)(batch), batch)
    assert report.raw["loss_semantic"].item() == 0
    assert torch.isfinite(report.total)


def test_target_points_are_rounded_before_they_are_divided_only_in_compat_mode() -> None:
    point = torch.full((2, 2), 43.3)
    tokens = []
    for compat in (Compat(), Compat(bf16_labels=True)):
        torch.manual_seed(0)
        config = demo(compat=compat)
        encoder = build_model(config).planning_decoder.planning_context_encoder.to(torch.bfloat16)
        batch = {**random_batch(config), "target_point": point}
        seen: list[torch.Tensor] = []
        encoder.tp_encoder.register_forward_pre_hook(lambda _module, inputs, seen=seen: seen.append(inputs[0]))
        encoder._status_tokens(torch.bfloat16, None, batch)
        tokens.append(seen[0][:, 0])
    scale = torch.tensor([200.0, 50.0])
    assert torch.equal(tokens[0], (point / scale).bfloat16())
    assert torch.equal(tokens[1], point.bfloat16() / scale.bfloat16())
    assert not torch.equal(tokens[0], tokens[1])


def test_labels_are_rounded_to_bf16_only_in_compat_mode() -> None:
    config = demo()
    batch = random_batch(config)
    with torch.no_grad():
        predictions = replace(build_model(config).eval()(batch), autocast_dtype=torch.bfloat16)
    batch["route"] = batch["route"] + 40.01
    exact = compute_losses(config, predictions, batch).raw["loss_spatial_route"]
    rounded = compute_losses(demo(compat=Compat(bf16_labels=True)), predictions, batch).raw["loss_spatial_route"]
    assert exact.item() != rounded.item()


def test_metrics_of_a_perfect_plan_are_zero() -> None:
    config = demo()
    batch = random_batch(config)
    with torch.no_grad():
        predictions = build_model(config).eval()(batch)
    plan = replace(predictions.plan, route=batch["route"], future_waypoints=batch["future_waypoints"])
    metrics = compute_metrics(config, replace(predictions, plan=plan), batch)
    assert metrics["metric/route_ade"] == 0
    assert metrics["metric/waypoints_fde"] == 0
    assert -1.001 <= metrics["metric/target_speed_correlation"] <= 1.001


def test_a_frozen_backbone_keeps_its_weights() -> None:
    model = build_model(demo(freeze_backbone=True))
    assert not any(parameter.requires_grad for parameter in model.backbone.parameters())
    assert all(p.requires_grad for name, p in model.named_parameters() if not name.startswith("backbone."))


def test_an_unknown_architecture_is_named() -> None:
    with pytest.raises(BadConfig, match=r"image_architecture.*resnet43"):
        build_model(demo(image_architecture="resnet43"))


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_backbone_weights_come_from_a_classifiers_file_and_must_fit(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"resnet{suffix}"
    own = build_model(demo()).backbone.image_encoder.state_dict()
    state = {name: torch.full_like(value, 2).contiguous() for name, value in own.items()} | {
        "fc.weight": torch.zeros(10, 96)
    }
    save_file(state, file) if suffix == ".safetensors" else torch.save(state, file)
    loaded = build_model(demo(backbone_weights=str(file))).backbone.image_encoder.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in loaded.items())
    del state["layer1.0.conv1.weight"]
    with pytest.raises(BadConfig, match=r"has no 'layer1\.0\.conv1\.weight'"):
        load_backbone_weights(build_model(demo()).backbone.image_encoder, state, "resnet.pth")


def test_backbone_weights_in_a_store_need_their_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = build_model(demo()).backbone.image_encoder.state_dict()
    data = save({name: torch.full_like(value, 3).contiguous() for name, value in own.items()})
    FolderStore(tmp_path).create("weights/resnet.safetensors", data)
    monkeypatch.setenv("LEAD_STORE_URL", f"file://{tmp_path}")
    named = {"backbone_weights": "store:weights/resnet.safetensors"}
    digest = hashlib.sha256(data).hexdigest()
    loaded = build_model(demo(**named, backbone_weights_sha256=digest)).backbone.image_encoder.state_dict()
    assert all(bool((value == 3).all()) for value in loaded.values())
    for values, message in (
        (named, "backbone_weights_sha256: not set"),
        ({**named, "backbone_weights_sha256": "0" * 64}, "have another digest than 0000"),
        (
            {"backbone_weights": "store:weights/none.pth", "backbone_weights_sha256": digest},
            "has no object weights/none.pth",
        ),
    ):
        with pytest.raises(BadConfig, match=message) as refused:
            build_model(demo(**values))
        assert digest not in str(refused.value)


@pytest.mark.parametrize("key", ["runs/other/1/train-s0/config.json", "weights", "../weights/a", "weights/../runs/a"])
def test_weights_come_from_the_folder_of_weights_alone(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other object of the store is read as weights, and what its digest is stays unsaid.

    Audit: S-3
    """
    store = FolderStore(tmp_path)
    store.create("runs/other/1/train-s0/config.json", b"secret")
    monkeypatch.setenv("LEAD_STORE_URL", f"file://{tmp_path}")
    for sha256 in ("0" * 64, hashlib.sha256(b"secret").hexdigest()):
        with pytest.raises((BadConfig, UnsafeKey)) as refused:
            build_model(demo(backbone_weights=f"store:{key}", backbone_weights_sha256=sha256))
        assert "other digest" not in str(refused.value) and "file of weights" not in str(refused.value)


def test_the_digest_of_a_file_that_is_no_weights_is_never_shown(tmp_path: Path) -> None:
    """Audit: S-3"""
    (tmp_path / "secret-key").write_bytes(b"secret")
    with pytest.raises(BadConfig, match="another digest") as refused:
        build_model(demo(backbone_weights=str(tmp_path / "secret-key"), backbone_weights_sha256="0" * 64))
    assert hashlib.sha256(b"secret").hexdigest() not in str(refused.value)


@pytest.mark.parametrize("key", ["image_architecture", "lidar_architecture"])
@pytest.mark.parametrize(
    "name", ["hf-hub:timm/resnet34", "hf_hub:a/b", "local-dir:/etc", "resnet34.a1_in1k", "resnt34"]
)
def test_only_timms_own_models_are_made_and_nothing_is_asked_for_one(
    key: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Audit: S-5"""

    def asked(*_: Any, **__: Any) -> None:
        raise AssertionError("an address was looked up")

    monkeypatch.setattr(socket, "getaddrinfo", asked)
    with pytest.raises(BadConfig, match=rf"{key}: timm has no model .*; near: "):
        build_model(demo(**{key: name}))


def test_weights_that_are_missing_or_broken_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"no file at .*absent\.pth"):
        build_model(demo(backbone_weights=str(tmp_path / "absent.pth")))
    for name in ("broken.pth", "broken.safetensors"):
        (tmp_path / name).write_bytes(b"not weights")
        with pytest.raises(BadConfig, match=name):
            build_model(demo(backbone_weights=str(tmp_path / name)))


def test_synchronised_norms_keep_activations_and_predictions() -> None:
    config = demo(lidar_architecture="test_byobnet")  # its norms hold their activations
    model, batch = build_model(config).eval(), random_batch(config)
    with torch.no_grad():
        before = model(batch).bev_semantic
        converted = synchronise_norms(model)
        after = converted(batch).bev_semantic
    assert any(isinstance(module, torch.nn.SyncBatchNorm) for module in converted.modules())
    torch.testing.assert_close(before, after)
