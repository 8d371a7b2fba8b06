"""A table over every key: changing it changes something that can be seen, or it is refused with a reason.

The keys are LeadConfig's own and all those LEAD writes to its config.json or documents. For each of ours another value
is set, and what follows from the two configs is compared, cheapest view first: what the loop and W&B are told, the
prepared records, the samples, the network, its predictions, losses and pictures.
"""

import ast
import functools
import hashlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
import torch
from torch import nn

import lead_trainer
from lead_testing import golden_model, shared_dir
from lead_testing.on_demand_cache import OnDemandCache
from lead_testing.sample_batches import random_batch
from lead_trainer.blocks.fusion_transformer import SelfAttention
from lead_trainer.contract.step import Position
from lead_trainer.contract.training_keys import TrainingKeys
from lead_trainer.data.jpeg_picture import decoded
from lead_trainer.errors import BadConfig
from lead_trainer.example_worlds.lead.tree import write_example_tree
from lead_trainer.recipes.lead.config import ALIASES, LeadConfig
from lead_trainer.recipes.lead.config_values import DERIVED, REFUSED, WITHOUT_EFFECT, load_config
from lead_trainer.recipes.lead.dataset import collection_of
from lead_trainer.recipes.lead.decoders import decode_boxes
from lead_trainer.recipes.lead.ingest.plain_pickle import read_plain
from lead_trainer.recipes.lead.losses import compute_losses
from lead_trainer.recipes.lead.prepare_keys import PreparationKeys
from lead_trainer.recipes.lead.prepare_metas import meta_row
from lead_trainer.recipes.lead.recipe import RECIPE
from lead_trainer.recipes.lead.targets.boxes import SceneFacts, box_rows
from lead_trainer.recipes.lead.targets.label_classes import DOOR_SCENARIO
from lead_trainer.recipes.lead.targets.view import NORMAL

pytestmark = pytest.mark.usefixtures("one_thread")

TESTS = Path(__file__).parents[1]
TRAINER = Path(inspect.getfile(lead_trainer)).parent
SMALL = {"use_planning_decoder": True, "num_threads": 1, "batch_size": 2, "epochs": 4, "carla_root": "tree"}

# Another value, where the default's neighbour would not do, and what must be set beside it, before and after.
Case = tuple[Any, dict[str, Any]]
NO_PLAN = {"LTF": True, "predict_spatial_path": False, "predict_target_speed": False}
NAVSIM = {**NO_PLAN, "use_carla_data": False, "use_navsim_data": True}
WAYMO = {**NO_PLAN, "use_carla_data": False, "use_waymo_e2e_data": True}
WIDE = {"radar_token_dim": 64, "radar_sine_features": 32}
TOGETHER: dict[str, dict[str, Any]] = {  # keys that only move as a pair
    "bb_input_channel": {"bev_features_chanels": 64},
    "bev_features_chanels": {"bb_input_channel": 64},
    "deconv_scale_factor_0": {"deconv_scale_factor_1": 4},
    "deconv_scale_factor_1": {"deconv_scale_factor_0": 8},
    "radar_sine_features": WIDE,
    "radar_token_dim": WIDE,
}
CASES: dict[str, Case] = {
    "batch_size": (4, {}),
    "best_is_greatest": (True, {"best_metric": "val/bev_semantic_miou"}),
    "best_metric": ("val/waypoints_ade", {}),
    "bb_confidence_threshold": (0.9, {}),
    "bb_input_channel": (64, {}),
    "bev_down_sample_factor": (2, {}),
    "bev_features_chanels": (64, {}),
    "center_net_max_pooling_kernel": (5, {}),
    "cameras": ([{"position": [0.0, 0.0, 2.0], "fov": 20.0}] * 3, {}),
    "car_open_door_extra_width": (3.0, {}),
    "carla_num_samples": (3, {}),
    "compat": ({"lagging_lr": True}, {}),
    "data_bb_static_types_white_list": ((), {}),
    "deconv_scale_factor_0": (8, {}),
    "deconv_scale_factor_1": (4, {}),
    "ema_decay": (0.5, {}),
    "gpt_linear_layer_init_mean": (0.5, {}),
    "gpu_name": ("NVIDIA A100-SXM4-80GB", {"precision": "lead"}),
    "grad_history_length": (10, {"use_grad_clipper": True}),
    "grad_quantile": (0.5, {"use_grad_clipper": True}),
    "hist_max_per_pixel": (1, {}),
    "hold_out_town13_routes": (True, {}),
    "image_architecture": ("test_byobnet", {}),
    "image_height": (192, {}),
    "image_width": (576, {}),
    "iou_treshold_nms": (0.9, {"bb_confidence_threshold": 0.0}),
    "lidar_architecture": ("test_byobnet", {}),
    "loader": ("process", {}),
    "lr_warmup_steps": (3, {}),
    "max_acceleration": (5.0, {"use_acceleration": True}),
    "max_height_lidar": (0.0, {}),
    "max_num_bbs": (2, {}),
    "max_speed": (30.0, {}),
    "max_x_meter": (48, {"min_x_meter": -32}),
    "max_y_meter": (56, {}),
    "max_z": (0.2, {}),
    "min_height_lidar": (0.5, {}),
    "min_x_meter": (-48, {}),
    "min_y_meter": (-56, {}),
    "min_z": (3.9, {}),
    "n_head": (2, {}),
    "navsim_num_bb_classes": (2, NAVSIM),
    "navsim_num_bev_semantic_classes": (8, NAVSIM),
    "num_past_samples_used": (3, {**WAYMO, "use_past_positions": True, "num_past_samples_used": 2}),
    "num_radar_queries": (5, {}),
    "num_radar_sensors": (3, {}),
    "pedestrian_min_num_lidar_points": (10_000, {"pedestrian_min_num_visible_pixels": 10_000_000}),
    "pedestrian_min_num_visible_pixels": (10_000_000, {"pedestrian_min_num_lidar_points": 10_000}),
    "vehicle_min_num_lidar_points": (10_000, {"vehicle_min_num_visible_pixels": 10_000_000}),
    "vehicle_min_num_visible_pixels": (10_000_000, {"vehicle_min_num_lidar_points": 10_000}),
    "parking_vehicle_min_num_lidar_points": (10_000, {"parking_vehicle_min_num_visible_pixels": 10_000_000}),
    "parking_vehicle_min_num_visible_pixels": (10_000_000, {"parking_vehicle_min_num_lidar_points": 10_000}),
    "pedestrian_bev_min_extent": (3.0, {}),
    "pixels_per_meter": (4.0, {}),
    "precision": ("bf16", {}),
    "radar_num_heads": (4, {}),
    "radar_sine_features": (32, {}),
    "radar_token_dim": (64, {}),
    "session_cache_backend": ("diskcache", {}),
    "skip_first_pretrain": (3, {"use_planning_decoder": False}),
    "skip_last_pretrain": (3, {"use_planning_decoder": False}),
    "target_point_scale": ((100.0, 50.0), {}),
    "target_speed_classes": ((0.0, 10.0, 20.0), {}),
    "tp_pop_distance": (5.0, {}),
    "training_used_lidar_steps": (1, {}),
    "transfuser_num_bev_cross_attention_heads": (4, {}),
    "transfuser_token_dim": (64, {}),
    "use_color_aug_prob": (1.0, {}),
    "use_carla_data": (False, {**NO_PLAN, "use_navsim_data": True}),
    "use_navsim_data": (True, NO_PLAN),
    "use_past_positions": (False, {**WAYMO, "num_past_samples_used": 2}),
    "use_past_speeds": (False, {**WAYMO, "num_past_samples_used": 2}),
    "use_sensor_perburtation_prob": (1.0, {}),
    "used_cameras": ((False, True, False), {}),
    "validate_every_epochs": (2, {"validation_fraction": 0.5}),
    "validate_every_steps": (2, {"validation_fraction": 0.5}),
    "validation_fraction": (0.5, {}),
    "validation_max_samples": (2, {"validation_fraction": 0.5}),
    "wandb_id": ("abc", {}),
    "wandb_project_name": ("mine", {}),
    "wandb_resume": ("must", {}),
}

# Keys of the run around the recipe, and the test that shows what each does.
SHOWN_BY: dict[str, str] = {
    "backbone_weights": "lead_model/test_model.py::test_backbone_weights_come_from_a_classifiers_file_and_must_fit",
    "backbone_weights_sha256": "lead_model/test_model.py::test_backbone_weights_in_a_store_need_their_digest",
    "carla_root": "lead_model/test_the_files_are_leads.py::test_a_tiny_run_leaves_the_files_of_leads_guide",
    "continue_failed_training": (
        "cli/test_a_local_run_leaves_leads_files.py::test_a_killed_run_resumes_to_the_same_bits_under_leads_names"
    ),
    "num_route_points_smoothing": (
        "lead_model/test_other_horizons.py::test_a_route_is_smoothed_from_so_many_stored_points"
    ),
    "navsim_data_root": "lead_data/test_mixing.py::test_a_run_trains_on_the_caches_of_two_sets",
    "navsim_num_samples": "lead_data/test_mixing.py::test_a_wanted_number_is_a_new_subset_each_epoch_or_repeats_evenly",
    "schedule_carla_num_samples": "lead_data/test_mixing.py::test_carlas_share_is_annealed_as_in_lead_for_any_batch",
    "source_dataset": "lead_data/test_data_sources.py::test_a_cache_of_several_sets_must_say_which",
    "use_waymo_e2e_data": "lead_data/test_data_sources.py::test_a_waymo_sample_is_the_file_in_carlas_frame",
    "waymo_e2e_num_training_samples": (
        "lead_data/test_mixing.py::test_a_wanted_number_is_a_new_subset_each_epoch_or_repeats_evenly"
    ),
    "waymo_e2e_subsample_factor": (
        "lead_data/test_mixing.py::test_waymo_trains_on_every_fifth_frame_and_on_others_each_epoch"
    ),
    "waymo_e2e_training_data_root": "lead_data/test_mixing.py::test_a_run_trains_on_the_caches_of_two_sets",
    "epoch_checkpoints_keep": "lead_model/test_the_files_are_leads.py::test_chosen_epochs_keep_their_model_file",
    "load_file": "lead_model/test_the_files_are_leads.py::test_a_tiny_run_leaves_the_files_of_leads_guide",
    "logdir": "lead_model/test_the_files_are_leads.py::test_a_tiny_run_leaves_the_files_of_leads_guide",
    "validation_towns": "lead_model/test_validation.py::test_a_town_is_held_out_whole",
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("keys") / "carla_leaderboard2"
    write_example_tree(root, routes=2, frames=22, seed=0)
    return root


def digest(*values: Any) -> str:
    """Returns a hash of nested values, arrays and tensors by their bytes."""
    sha = hashlib.sha256()

    def add(value: Any) -> None:
        value = decoded(value)
        if isinstance(value, torch.Tensor):
            value = value.detach().numpy()
        if isinstance(value, np.ndarray):
            sha.update(repr((value.shape, str(value.dtype))).encode() + np.ascontiguousarray(value).tobytes())
        elif isinstance(value, dict):
            for key in sorted(value):
                sha.update(str(key).encode())
                add(value[key])
        elif isinstance(value, bytes | memoryview):
            sha.update(value)
        else:
            sha.update(repr(value).encode())

    for value in values:
        add(value)
    return sha.hexdigest()


@functools.cache
def asked_by_the_engine() -> list[str]:
    """Returns what the engine's source reads of a config; a key that nobody reads there has no effect by it."""
    rooms = sorted((TRAINER / "engine").rglob("*.py"))
    nodes = [node for room in rooms for node in ast.walk(ast.parse(room.read_text(encoding="utf-8")))]
    read = [node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)]
    names = {node.attr for node in read if ast.unparse(node.value).split(".")[-1] == "config"}
    properties = {name for name, value in vars(TrainingKeys).items() if isinstance(value, property)}
    return sorted(names & (properties | TrainingKeys.model_fields.keys()))


def told(config: LeadConfig, _tree: Path) -> str:
    """What the loop, the optimizer and W&B hear."""
    optimizer = RECIPE.optimizer(nn.Linear(1, 1), config)
    assert isinstance(optimizer, torch.optim.Optimizer)
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    stage = (4,) * config.epochs
    factors = [RECIPE.lr_factor(config, Position(step, epoch_steps=stage)) for step in range(4 * config.epochs)]
    asked = {name: getattr(config, name) for name in asked_by_the_engine()}
    return digest(asked, RECIPE.reports.wandb(config), groups, factors)


def cache_of(config: LeadConfig, tree: Path) -> OnDemandCache:
    values = config.model_dump(mode="json", exclude_unset=True)
    return OnDemandCache(tree, values, [collection_of(config)])


def prepared(config: LeadConfig, tree: Path) -> str:
    """The collection's rows and two records of a cache."""
    cache = cache_of(config, tree)
    rows = cache.rows(collection_of(config))
    records = [cache.fields(int(sample)) for sample in rows.sample[[0, -1]]]
    boxes, meta = (
        read_plain((tree / f"{rows.route[0]}/{name}/0010.pkl").read_bytes(), name) for name in ("bboxes", "metas")
    )
    standing = [{**box, "role_name": "scenario", "speed": 0.0} if box["class"] == "car" else box for box in boxes]
    scene = SceneFacts(DOOR_SCENARIO, frozenset(box.get("id") for box in boxes), True, True, False, False)
    labels = box_rows(standing, scene, NORMAL, PreparationKeys.of(config))
    meta |= {f"next_target_points_{distance}": [[distance] * 3] * 2 for distance in (3.25, 5.0)}
    targets = meta_row(meta, 10, config.tp_pop_distance, "meta")["next_target_points"]
    return digest(rows.mixture, rows.bucket, list(rows.route), rows.frame, labels, targets, *records)


def sampled(config: LeadConfig, tree: Path) -> str:
    """Order, and a few samples."""
    samples = RECIPE.samples(config, {"carla": cache_of(config, tree)})
    drawn = [samples.epoch_draw(epoch) for epoch in (0, 1)]
    return digest(*drawn, samples.order_epoch(1), *(samples.load(index, 0) for index in (0, 1, 2)))


@functools.cache
def model_of(config: LeadConfig) -> Any:
    torch.manual_seed(0)
    model = RECIPE.model(config, {})
    for parameter in model.parameters():  # norms and biases start at 0 or 1, and would hide what reads them
        parameter.data.add_(0.01 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    if model.center_net_decoder is not None:
        model.center_net_decoder.wh_head[-1].bias.data.fill_(3.0)  # cells: neighbouring boxes overlap
    return model.eval()


def built(config: LeadConfig, _tree: Path) -> str:
    """Names, shapes, first weights, memory format, dropout rates, what is trained."""
    model = model_of(config)
    rates = [module.p for module in model.modules() if isinstance(module, nn.Dropout)]
    rates += [module.attention_dropout for module in model.modules() if isinstance(module, SelfAttention)]
    trained = [parameter.requires_grad for parameter in model.parameters()]
    strides = [value.stride() for value in model.state_dict().values()]
    return digest(rates, trained, strides, dict(model.state_dict()))


@torch.no_grad()
def ran(config: LeadConfig, _tree: Path) -> str:
    """Predictions, boxes, losses with their weights, and the picture."""
    batch = random_batch(config)
    predictions = model_of(config)(batch)
    boxes = None if predictions.center_net is None else decode_boxes(config, predictions.center_net)
    report = compute_losses(config, predictions, batch)
    assert RECIPE.reports.picture is not None
    picture = RECIPE.reports.picture(config, batch, predictions)
    plan = None if predictions.plan is None else predictions.plan.route
    return digest(predictions.bev_semantic, plan, boxes, report.raw, report.weights, report.total, picture)


VIEWS: tuple[Callable[[LeadConfig, Path], str], ...] = (told, built, ran, prepared, sampled)


def one_value_only(key: str) -> bool:
    annotation = LeadConfig.model_fields[key].annotation
    return get_origin(annotation) is Literal and len(get_args(annotation)) == 1


def other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return value / 2 if value else 0.5
    return (1,) if isinstance(value, tuple) else value + ("x" if isinstance(value, str) else 1)


ACCEPTED = sorted(key for key in LeadConfig.model_fields if key not in REFUSED and not one_value_only(key))


@pytest.mark.parametrize("key", [key for key in ACCEPTED if key not in SHOWN_BY])
def test_changing_a_key_changes_something(key: str, tree: Path) -> None:
    first = load_config(SMALL, "demo")
    value, beside = CASES.get(key, (None, {}))
    if key not in CASES:
        value = other(getattr(first, key))
    base = load_config({**SMALL, **beside}, "demo")
    changed = load_config({**SMALL, **beside, **TOGETHER.get(key, {}), key: value}, "demo")
    assert base != changed, f"{key} was not changed"
    assert any(view(base, tree) != view(changed, tree) for view in VIEWS), f"{key} is accepted, but has no effect"


@pytest.mark.parametrize("key", sorted(SHOWN_BY))
def test_the_test_that_shows_a_key_exists(key: str) -> None:
    assert key in LeadConfig.model_fields
    file, name = SHOWN_BY[key].split("::")
    nodes = ast.walk(ast.parse((TESTS / file).read_text()))
    assert name in [node.name for node in nodes if isinstance(node, ast.FunctionDef)]


@pytest.mark.parametrize("key", sorted(key for key in LeadConfig.model_fields if key not in ACCEPTED))
def test_a_key_of_one_value_is_refused_with_a_reason(key: str) -> None:
    with pytest.raises(BadConfig, match=f"^{key}: found .*(; |but this recipe)"):
        load_config({key: other(LeadConfig.model_fields[key].default)})


@pytest.mark.parametrize("key", sorted(DERIVED.keys() | WITHOUT_EFFECT.keys()))
def test_a_key_that_is_none_of_ours_is_refused_with_what_to_do(key: str) -> None:
    assert key not in LeadConfig.model_fields
    with pytest.raises(BadConfig, match=f"^{key}: (follows from other keys .* set |has no effect here: .*; remove)"):
        load_config({key: 1})


def leads_keys() -> set[str]:
    """Returns every key LEAD writes, and every name in the reference's table of hyper-parameters."""
    document = golden_model.golden_json("config_defaults")
    written = {key for stage in ("pretrain_default", "posttrain_default") for key in document[stage]["values"]}
    text = (shared_dir() / "reference" / "lead.md").read_text()
    table = text.split("## 9. Hyper-parameters")[1].split("\n## ")[0]
    named = {key for key in LeadConfig.model_fields if key in table}
    return written | named | {"iou_treshold_nms", "use_radars", "data_save_freq", "carla_fps"}


def test_no_key_that_lead_has_is_unknown() -> None:
    known = LeadConfig.model_fields.keys() | ALIASES.keys() | DERIVED.keys() | WITHOUT_EFFECT.keys()
    assert leads_keys() - known == set()
