"""The guide's files, flags, presets and words, and the keys that they become."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from lead_testing.small_world import SMALL_WORDS, small_config
from lead_trainer.contract.step import Position
from lead_trainer.errors import BadConfig
from lead_trainer.local.run import local_run
from lead_trainer.recipes.world.config import WorldConfig
from lead_trainer.recipes.world.config_values import KEYS
from lead_trainer.recipes.world.guide_commands import OWN, shipped, with_shipped_configs
from lead_trainer.recipes.world.model import build_model
from lead_trainer.recipes.world.recipe import RECIPE

CONFIGS = OWN / "configs"
TREE = ["model/base.yaml", "training/base.yaml", "training/distributed.yaml", "data/nuscenes.yaml", "data/carla.yaml"]


def config(*words: str, files: tuple[str, ...] = ()) -> Any:
    return local_run(["recipe=world", *words], [CONFIGS / name for name in files], {}).config


def test_w_54_and_w_05_the_five_files_load_and_merge() -> None:
    assert sorted(str(path.relative_to(CONFIGS)) for path in CONFIGS.rglob("*.yaml")) == sorted(TREE)
    for name in TREE:
        config(files=(name,))
    found = config(files=("training/base.yaml", "model/base.yaml", "data/carla.yaml", "training/distributed.yaml"))
    assert (found.gradient_accumulation_steps, found.data.dataset, found.epochs) == (1, "carla", 100)
    assert found.distributed and found.backend == "nccl" and found.data.sequence_length == 10


def test_w_06_to_w_13_the_files_hold_the_defaults() -> None:
    found = config(files=("training/base.yaml", "model/base.yaml"))
    assert found.model_dump() == WorldConfig().model_dump()
    run = local_run(["recipe=world"], [CONFIGS / "training/base.yaml"], {}).keys
    assert run.every_steps == yaml.safe_load((CONFIGS / "training/base.yaml").read_text())["logging"]["save_interval"]
    assert local_run(["recipe=world"], [], {}).keys.every_steps == run.every_steps == 5000
    assert (found.batch_size, found.gradient_accumulation_steps, found.grad_clip_norm) == (16, 4, 1.0)
    assert found.optimizer.rates() == {"encoder": 1e-5, "dynamics": 1e-4, "decoder": 1e-4}
    assert found.precision == "auto" and found.loader_threads == 4
    assert (found.log_scalars_frequency, found.console_every_steps, found.validate_every_steps) == (100, 100, 1000)


def test_w_04_a_word_wins_over_a_file_whichever_words_they_use() -> None:
    base = ("training/base.yaml",)
    assert config("batch_size=8", files=base).batch_size == 8
    assert config("training.batch_size=8", "training.use_amp=false", files=base).precision == "fp32"
    assert config("training.num_epochs=3", files=base).epochs == 3
    with pytest.raises(BadConfig, match=r"batch_size is given twice, once as training\.batch_size; keep one"):
        config("batch_size=8", "training.batch_size=8")


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("training.num_epoch=3", r"training\.num_epoch: unknown key; did you mean num_epochs\?"),
        ("loss.recon_weigth=1", r"loss\.recon_weigth: unknown key"),
        ("model.latent_dim=0", r"model\.latent_dim: found 0; input should be greater than or equal to 1"),
        ("model.decoder.init_size=8", r"init_size 8 doubled by 4 stages makes pictures of 128x128, but .* is 256x256"),
        ("model.encoder.num_heads=5", r"encoder\.num_heads is 5, expected a divisor of the last stage's 512"),
        ("data.sequence_length=1", r"data\.sequence_length: found 1"),
        ("data.frame_skip=0", r"data\.frame_skip: found 0"),
        ("logging.rollout_context=10", r"rollout_context: found 10, expected less than the 10 frames"),
    ],
)
def test_a_bad_value_is_named_with_what_to_do(word: str, sentence: str) -> None:
    with pytest.raises(BadConfig, match=sentence):
        config(word)


def test_w_55_the_words_of_a_sweep_parse() -> None:
    found = config("--optimizer.lr=3e-4", "--loss.perceptual_weight=0", "--model.dynamics.dropout=0.2")
    assert (found.optimizer.lr, found.loss.perceptual_weight, found.model.dynamics.dropout) == (3e-4, 0.0, 0.2)


def test_w_40_a_distributed_batch_is_of_each_process_and_use_dp_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    found = config(files=("training/distributed.yaml",))
    assert found.batch_size == 64 and config().batch_size == 16
    (said,) = RECIPE.reports.warnings(found)
    assert "the global batch is 64" in said
    (dp,) = RECIPE.reports.warnings(config("use_dp=true"))
    assert "torchrun" in dp


def test_w_28_flags_of_wandb() -> None:
    run = local_run(["recipe=world", "use_wandb=true", "wandb_project=world-model", "wandb_name=one"], [], {})
    keys = RECIPE.reports.wandb(run.config)
    assert keys.on and keys.name == "one" and run.keys.wandb_project == "world-model"


@pytest.mark.parametrize(
    ("preset", "wanted"),
    [
        ("base", {"batch_size": 16, "epochs": 100}),
        ("quick", {"batch_size": 32, "epochs": 20}),
        ("best", {"batch_size": 16, "epochs": 200, "gradient_accumulation_steps": 4}),
        ("memory", {"batch_size": 4, "gradient_accumulation_steps": 4, "gradient_checkpointing": True}),
    ],
)
def test_w_47_to_w_49_presets_are_the_guides(preset: str, wanted: dict[str, Any]) -> None:
    found = config(f"preset={preset}")
    assert {key: getattr(found, key) for key in wanted} == wanted
    sizes = {"base": (256, 512), "quick": (128, 256), "best": (512, 1024), "memory": (128, 256)}
    assert (found.model.latent_dim, found.model.hidden_dim) == sizes[preset]
    assert (found.data.sequence_length == 5) == (preset == "quick")
    assert found.loss.perceptual_weight == (0.2 if preset == "best" else 0.1)
    assert config(f"preset={preset}", "batch_size=8", "data.frame_skip=2").data.frame_skip == 2


def test_a_preset_is_overridden_key_by_key() -> None:
    found = local_run([*SMALL_WORDS, "batch_size=2", "optimizer.lr=5e-4"], [], {}).config
    assert (found.batch_size, found.optimizer.lr, found.optimizer.encoder_lr) == (2, 5e-4, 1e-3)
    assert found.data.image_size == (32, 32) and found.data.augmentation.flip == 0.0


def test_guide_keys_are_read_in_a_cluster_too() -> None:
    found = RECIPE.config({"training": {"batch_size": 8}, "logging": {"log_interval": 5}}, "quick")
    assert (found.batch_size, found.epochs, found.console_every_steps) == (8, 20, 5)
    with pytest.raises(BadConfig, match=r"save_interval: in a cluster spec\.checkpoint\.everySteps"):
        RECIPE.config({"logging": {"save_interval": 5}})


def test_a_config_that_is_not_here_is_the_one_that_is_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shipped("configs/training/base.yaml") == str(CONFIGS / "training/base.yaml")
    assert shipped("configs/none.yaml") == "configs/none.yaml" and shipped("../config.py") == "../config.py"
    words = with_shipped_configs(["--config", "configs/training/base.yaml", "--config=configs/model/base.yaml", "a=1"])
    assert words == ["--config", str(CONFIGS / TREE[1]), f"--config={CONFIGS / TREE[0]}", "a=1"]
    (tmp_path / "configs/training").mkdir(parents=True)
    (tmp_path / "configs/training/base.yaml").write_text("training: {}")
    assert shipped("configs/training/base.yaml") == "configs/training/base.yaml"


def test_w_07_three_groups_hold_every_parameter_and_another_part_is_refused() -> None:
    found = small_config(optimizer__encoder_lr=1e-5)
    model = build_model(found)
    made = RECIPE.optimizer(model, found)
    assert isinstance(made, torch.optim.Optimizer)
    assert [(group["name"], group["lr"]) for group in made.param_groups] == [
        ("encoder", 1e-5), ("dynamics", 1e-3), ("decoder", 1e-3),
    ]  # fmt: skip
    held = {id(one) for group in made.param_groups for one in group["params"]}
    assert held == {id(one) for one in model.parameters()}
    model.reward = torch.nn.Linear(2, 1)
    with pytest.raises(BadConfig, match="found parameters of reward, expected those of encoder, dynamics, decoder"):
        RECIPE.optimizer(model, found)


def test_w_09_the_rate_at_epoch_25_of_100_is_the_guides() -> None:
    at = Position(step=25_000, epoch=25, epoch_steps=(1000,) * 100)
    factors = RECIPE.lr_factor(WorldConfig(scheduler={"warmup_steps": 1000}), at)
    assert isinstance(factors, dict)
    assert 1e-4 * factors["dynamics"] == pytest.approx(8.63e-5, rel=1e-3)  # with the warm-up before the cosine
    without = RECIPE.lr_factor(WorldConfig(scheduler={"warmup_steps": 0}), at)
    assert isinstance(without, dict)
    assert 1e-4 * without["dynamics"] == pytest.approx(8.5e-5, rel=0.01)


def test_keys_are_the_engines_where_they_teach_nothing() -> None:
    assert {"data.num_workers", "logging.num_samples", "data_root"} <= KEYS.not_learned
    assert KEYS.weights == {"perceptual_weights"}


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("data.image_size=128", "data.image_size: found 128, expected 2 values; write for example [128, 128]"),
        ("data.image_size=128x96", "data.image_size: found '128x96', expected 2 values; write for example [256, 256]"),
        ("data.augmentation.crop_scale=0.5", "crop_scale: found 0.5, expected 2 values; write for example [0.5, 0.5]"),
    ],
)
def test_one_value_in_the_place_of_two_is_refused_with_what_to_write(word: str, sentence: str) -> None:
    with pytest.raises(BadConfig, match=re.escape(sentence)):
        config(word)
