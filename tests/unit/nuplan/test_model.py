"""The model of the recipe `nuplan`: its shapes, one grid for both sensors, frusta that are kept, memory for time."""

from pathlib import Path
from typing import Any

import pytest
import torch
from structlog.testing import capture_logs

from lead_protocol.manifests import sha256_hex
from lead_protocol.store.folder import FolderStore
from lead_testing.nuplan_batches import AGENTS, made_up_batch, tiny_config
from lead_trainer.contract.step import StepContext
from lead_trainer.engine.step.precision import autocast, gradient_scaler
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.nuplan.config import NuplanConfig
from lead_trainer.recipes.nuplan.losses import compute_losses
from lead_trainer.recipes.nuplan.metrics import metric_states
from lead_trainer.recipes.nuplan.model import NuplanModel, build_model
from lead_trainer.recipes.nuplan.network.box_code import at_cells, decoded, encoded, shown_boxes
from lead_trainer.recipes.nuplan.network.grid import cell_of
from lead_trainer.recipes.nuplan.validation import evaluate


def built(config: NuplanConfig, seed: int = 0) -> NuplanModel:
    torch.manual_seed(seed)
    return build_model(config, {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.25, 0.25, 0.25]})


def gradients(model: NuplanModel, config: NuplanConfig, batch: dict[str, Any]) -> dict[str, torch.Tensor]:
    model.zero_grad()
    compute_losses(config, model(batch), batch, getattr(model, "log_variances", {})).total.backward()
    return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}


def test_n_18_and_n_57_outputs_have_the_documented_shapes_and_every_weight_learns() -> None:
    config = tiny_config(loss={"imitation": True, "weighting": "learned"})
    model, batch = built(config), made_up_batch(config)
    outputs = model(batch)
    cells, steps, modes = config.data.grid_cells, config.data.future_steps, config.model.modes
    assert {name: tuple(value.shape) for name, value in outputs.items()} == {
        "heat": (2, 3, cells, cells), "boxes": (2, 8, cells, cells), "layers": (2, 5, cells, cells),
        "occupied": (2, cells, cells), "grid": (2, config.model.bev_channels, cells, cells),
        "places": (2, 1 + AGENTS, modes, steps, 2), "log_sigma": (2, 1 + AGENTS, modes, steps, 2),
        "headings": (2, 1 + AGENTS, modes, steps), "speeds": (2, 1 + AGENTS, modes, steps),
        "mode_scores": (2, 1 + AGENTS, modes),
    }  # fmt: skip
    found = gradients(model, config, batch)
    assert found.keys() == dict(model.named_parameters()).keys()
    for task in ("detection", "segmentation", "occupancy", "prediction"):  # N-23: learned weights are parameters
        assert found[f"log_variances.{task}"].abs() > 0


@pytest.mark.parametrize(("preset", "million"), [("base", 23.5), ("tiny", 1.5)])
def test_n_18_presets_are_as_large_as_documented(preset: str, million: float) -> None:
    from lead_trainer.recipes.nuplan.config_values import KEYS

    with torch.device("meta"):
        model = build_model(KEYS.config(NuplanConfig, {}, preset), {})
    assert sum(one.numel() for one in model.parameters()) / 1e6 == pytest.approx(million, abs=0.1)


def test_n_15_a_point_and_a_line_of_sight_end_in_the_same_cell_of_the_grid() -> None:
    config = tiny_config()
    model, batch, place = built(config), made_up_batch(config, 1), torch.tensor([10.0, -5.0])
    data, stride = config.data, config.model.image_stride
    wanted = cell_of(place, data.range_m, data.grid_cells).tolist()
    row = round(64 / stride / 2)
    frustum = model.lift.places(
        ["one"], batch["intrinsics"], batch["camera_to_vehicle"], batch["picture_to_sweep"], (8, 12)
    )
    ahead = frustum[0, 0, :, row]  # (D, w, 3) of the front camera
    depth, column = divmod(int((ahead[..., :2] - place).norm(dim=-1).argmin()), 12)
    batch["picture_to_sweep"][..., :2, 3] += place - ahead[depth, column, :2]  # now it lies on the place itself
    moved = model.lift.places(
        ["one"], batch["intrinsics"], batch["camera_to_vehicle"], batch["picture_to_sweep"], (8, 12)
    )
    only = torch.zeros(2, config.model.depth_bins, 8, 12)
    only[0, depth, row, column] = 1.0
    seen = model.lift(only, torch.ones(2, 1, 8, 12), moved, 2)[0, 0]
    assert divmod(int(seen.argmax()), data.grid_cells) == tuple(wanted) and float(seen.sum()) == 1.0
    points = torch.tensor([[[10.0, -5.0, 0.5, 1.0, 3.0]]])
    image = model.pillars.pseudo_image(points, torch.tensor([1])).abs().sum(1)[0]
    pillar = divmod(int(image.argmax()), data.pillar_cells)
    ratio = data.pillar_cells // data.grid_cells
    assert [number // ratio for number in pillar] == wanted


def test_n_14_padding_of_points_changes_nothing() -> None:
    config = tiny_config()
    model, batch = built(config), made_up_batch(config)
    padded = torch.cat([batch["points"], torch.ones(2, 7, 5)], 1)
    plain = model.pillars(batch["points"], batch["point_count"])
    assert torch.equal(plain, model.pillars(padded, batch["point_count"]))
    empty = model.pillars.pseudo_image(batch["points"], torch.zeros(2, dtype=torch.long))
    assert not bool(empty.any())


def test_n_07_and_n_16_frusta_are_computed_once_for_each_calibration() -> None:
    config = tiny_config()
    lift, batch = built(config).lift, made_up_batch(config)
    given = batch["intrinsics"], batch["camera_to_vehicle"], batch["picture_to_sweep"]
    first = lift.places(batch["calibration"], *given, (8, 12))
    assert len(lift.frusta) == 1  # one log
    assert torch.equal(first, lift.places(batch["calibration"], *given, (8, 12))) and len(lift.frusta) == 1
    other = given[0].clone()
    other[1] *= 1.1
    second = lift.places(["one", "two"], other, *given[1:], (8, 12))
    assert len(lift.frusta) == 2 and torch.equal(second[0], first[0]) and not torch.equal(second[1], first[1])


def test_boxes_are_coded_and_decoded_and_shown_where_the_heat_is() -> None:
    config = tiny_config()
    batch, data = made_up_batch(config), config.data
    code, number, inside = encoded(batch["boxes"], data.range_m, data.grid_cells)
    assert bool(inside.all())
    assert torch.allclose(decoded(code, number, data.range_m, data.grid_cells), batch["boxes"], atol=1e-5)
    grid = torch.zeros(2, 8, data.grid_cells**2).scatter_(2, number[:, None].expand(-1, 8, -1), code.transpose(1, 2))
    boxes = grid.unflatten(2, (data.grid_cells, data.grid_cells))
    assert torch.equal(at_cells(boxes, number), code)
    heat = torch.full((2, 3, data.grid_cells**2), -9.0)
    heat[0, batch["box_class"][0, 0], number[0, 0]] = 3.0
    found = shown_boxes(heat.unflatten(2, boxes.shape[2:]), boxes, data.range_m, 5, 0.3)
    assert found.valid.sum() == 1 and int(found.kinds[0, 0]) == int(batch["box_class"][0, 0])
    assert torch.allclose(found.boxes[0, 0], batch["boxes"][0, 0], atol=1e-5)


def test_n_26_two_halves_of_a_batch_have_the_gradient_of_the_whole() -> None:
    config = tiny_config()
    model, batch = built(config).eval(), made_up_batch(config, 4)
    batch["known"][:] = 1  # as many in each half, as there are agents
    whole = gradients(model, config, batch)
    halves = [gradients(model, config, {name: value[part] for name, value in batch.items()})
              for part in (slice(0, 2), slice(2, 4))]  # fmt: skip
    for name in ("image.lifted.weight", "heads.heads.layers.3.weight", "ways.steps_of_modes.weight"):
        mean = (halves[0][name] + halves[1][name]) / 2
        assert torch.allclose(mean, whole[name], atol=1e-6, rtol=1e-4), name


def test_memory_is_saved_without_changing_gradients_or_running_statistics() -> None:
    config = tiny_config()
    batch = made_up_batch(config)
    plain, saving = built(config), built(config)
    saving.save_memory()
    expected, found = gradients(plain, config, batch), gradients(saving, config, batch)
    assert all(torch.allclose(found[name], expected[name], atol=1e-6) for name in expected)
    for (name, one), (_, other) in zip(plain.named_buffers(), saving.named_buffers(), strict=True):
        if "num_batches" not in name:
            assert torch.equal(one, other), name


def test_n_25_half_precision_runs_with_a_scaled_loss() -> None:
    config = tiny_config()
    model, batch, device = built(config), made_up_batch(config), torch.device("cpu")
    scaler = gradient_scaler(torch.float16, device, config.loss_scale)
    with autocast(torch.bfloat16, device):
        total = compute_losses(config, model(batch), batch, {}).total
    scaler.scale(total).backward()
    assert total.dtype == torch.float32 and scaler.state_dict()
    assert not gradient_scaler(torch.float32, device, config.loss_scale).state_dict()


def test_n_32_a_backbone_begins_with_the_weights_of_a_file_and_never_downloads(tmp_path: Path) -> None:
    config = tiny_config()
    given = built(config, seed=5).image.network.state_dict()
    torch.save(given, tmp_path / "resnet.pth")
    with capture_logs() as logs:
        model = build_model(config.model_copy(update={"backbone_weights": str(tmp_path / "resnet.pth")}), {})
    assert all(torch.equal(value, given[name]) for name, value in model.image.network.state_dict().items())
    assert [entry["tensors"] for entry in logs if "image network" in entry["event"]] == [len(given)]
    with pytest.raises(BadConfig, match="no file at"):
        build_model(config.model_copy(update={"backbone_weights": str(tmp_path / "absent.pth")}), {})
    with pytest.raises(BadConfig, match="timm has no model 'resnet3'; near: resnet"):
        build_model(tiny_config(model={"backbone": "resnet3"}), {})


def test_n_60_a_backbone_begins_with_an_object_of_the_store_by_its_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = built(tiny_config(), seed=5).image.network.state_dict()
    torch.save(given, tmp_path / "resnet.pth")
    data = (tmp_path / "resnet.pth").read_bytes()
    FolderStore(tmp_path / "store").create("weights/resnet.pth", data)
    monkeypatch.setenv("LEAD_STORE_URL", f"file://{tmp_path / 'store'}")
    config = tiny_config(backbone_weights="store:weights/resnet.pth", backbone_weights_sha256=sha256_hex(data))
    with capture_logs() as logs:
        model = build_model(config, {})
    assert all(torch.equal(value, given[name]) for name, value in model.image.network.state_dict().items())
    assert [entry["tensors"] for entry in logs if "image network" in entry["event"]] == [len(given)]
    with pytest.raises(BadConfig, match=r"backbone_weights_sha256: the bytes of .* have another digest"):
        build_model(config.model_copy(update={"backbone_weights_sha256": "0" * 64}), {})


def test_n_12_pictures_are_normalised_by_the_facts_of_the_training_set() -> None:
    encoder = built(tiny_config()).image
    assert encoder.mean.flatten().tolist() == [0.5, 0.5, 0.5] and encoder.std.flatten().tolist() == [0.25, 0.25, 0.25]
    assert "image.mean" in built(tiny_config()).state_dict()  # whoever evaluates the weights needs no data for it


def test_n_17_two_validations_are_equal_and_a_picture_shows_the_first_batch() -> None:
    config = tiny_config()
    model, batch = built(config).eval(), made_up_batch(config)
    found = []
    for _ in range(2):
        states = metric_states()
        with torch.no_grad():
            evaluation = evaluate(model, batch, StepContext(config=config, metrics=states))
        found.append({tag: float(total) for tag, (total, _) in evaluation.totals.items()})
        picture = evaluation.pictures["val/overview"]
        assert picture.dtype.name == "uint8" and picture.shape[1:] == (800, 3) and picture[-400:].std() > 1
    assert found[0] == found[1]
    with torch.no_grad():
        later = evaluate(model, batch, StepContext(config=config, metrics=metric_states(), micro_batch=1))
    assert later.pictures == {}
