"""Keys, flags, presets and the learning rate: what the training guide's command lines mean here."""

from pathlib import Path
from typing import Any

import pytest

from lead_trainer.contract.config_values import values_in
from lead_trainer.contract.files import CheckpointAt
from lead_trainer.contract.step import Position
from lead_trainer.errors import BadConfig
from lead_trainer.local.config_sources import with_flags
from lead_trainer.local.run import local_run
from lead_trainer.recipes.distill.config_values import PACKAGE, load_config
from lead_trainer.recipes.distill.recipe import RECIPE, source_root

# flag -> (key, default) as in the training guide
FLAGS: dict[str, tuple[str, Any]] = {
    "--model-size": ("model_size", "500m"),
    "--train-labels": ("train_labels", "teacher_labels/train_labels.npz"),
    "--val-labels": ("val_labels", "teacher_labels/val_labels.npz"),
    "--frames-dir": ("frames_dir", "extracted_frames"),
    "--offline": ("offline", False),
    "--ego-history-dir": ("ego_history_dir", "teacher_labels"),
    "--max-epochs": ("epochs", 150),
    "--patience": ("patience", 15),
    "--batch-size": ("batch_size", 48),
    "--accumulation-steps": ("accumulation_steps", 1),
    "--lr": ("lr", 1e-4),
    "--weight-decay": ("weight_decay", 0.02),
    "--warmup-epochs": ("warmup_epochs", 5),
    "--lr-schedule": ("lr_schedule", "cosine"),
    "--ema": ("ema", False),
    "--ema-decay": ("ema_decay", 0.999),
    "--yaw-weight": ("yaw_weight", 0.3),
    "--reasoning-weight": ("reasoning_weight", 0.25),
    "--reasoning-warmup-epochs": ("reasoning_warmup_epochs", 20),
    "--temperature": ("temperature", 0.07),
    "--action-weight": ("action_weight", 0.0),
    "--grad-clip": ("grad_clip", 0.0),
    "--discrete-actions": ("discrete_actions", False),
    "--num-action-bins": ("num_action_bins", 256),
    "--label-smoothing": ("label_smoothing", 0.1),
    "--no-unicycle": ("no_unicycle", False),
    "--freeze-bn": ("freeze_bn", False),
    "--overfit-tiny": ("overfit_tiny", 0),
    "--max-train-samples": ("max_train_samples", 0),
    "--max-val-samples": ("max_val_samples", 0),
    "--log-action-stats": ("log_action_stats", False),
    "--output-dir": ("logdir", "checkpoints"),
    "--save-every": ("save_every", 5),
    "--save-final-only": ("save_final_only", False),
    "--seed": ("seed", 42),
    "--compile": ("compile", False),
    "--num-workers": ("num_workers", 4),
    "--benchmark": ("benchmark", "none"),
    "--input-type": ("input_type", "camera"),
    "--num-modes": ("num_modes", 1),
    "--multimodal-loss": ("multimodal_loss", "wta"),
    "--nuscenes-root": ("nuscenes_root", ""),
    "--argoverse2-root": ("argoverse2_root", ""),
}
OTHERS: dict[str, Any] = {
    "--lr-schedule": "constant",
    "--model-size": "110m",
    "--num-modes": 6,
    "--multimodal-loss": "nll",
}


def resolved(*words: str) -> Any:
    return local_run(with_flags(["recipe=distill", *words]), [], {}).config


@pytest.mark.parametrize("flag", sorted(FLAGS))
def test_d_01_every_flag_of_the_guide_has_its_default_and_reaches_its_key(flag: str) -> None:
    key, default = FLAGS[flag]
    assert load_config({"model": "baseline"}).model_dump()[key] == default
    if flag in ("--benchmark", "--input-type"):  # only together; their pairs are tested below
        return
    other = OTHERS.get(flag, _other(default))
    word = [flag] if default is False else [flag, str(other)]
    assert resolved("--model", "baseline", *word).model_dump()[key] == other
    plain = resolved("model=baseline", f"{flag.strip('-').replace('-', '_')}={other}")
    assert plain.model_dump()[key] == other


def _other(default: Any) -> Any:
    if isinstance(default, bool):
        return True
    if isinstance(default, str):
        return f"other/{default or 'root'}"
    return default + 1 if isinstance(default, int) else default / 2 + 0.001


@pytest.mark.parametrize("flag", ["--overfit-tiny", "--max-train-samples", "--max-val-samples", "--save-every"])
def test_a_number_of_things_is_whole(flag: str) -> None:
    with pytest.raises(BadConfig, match=FLAGS[flag][0]):
        resolved("--model", "baseline", flag, "2.5")


def test_d_01_the_old_entry_point_and_lead_train_parse_alike() -> None:
    words = ["--model", "reasoning", "--reasoning-weight", "0.5", "--batch-size", "32", "--ema", "--seed", "123"]
    keys = ["model=reasoning", "reasoning_weight=0.5", "batch_size=32", "ema=true", "seed=123"]
    assert resolved(*words) == resolved(*keys)
    assert with_flags(["train", "--config", "a.yaml", "--lr", "1e-4"]) == ["train", "--config", "a.yaml", "lr=1e-4"]
    assert resolved("--model", "baseline", "--ema", "--no-offline", "--no-unicycle").offline is False


def test_d_09_a_run_without_a_model_is_told_to_name_one() -> None:
    with pytest.raises(BadConfig, match=r"model: is not set; name one, for example model=baseline"):
        resolved("--offline")


def test_an_unknown_flag_is_refused_with_its_near_match() -> None:
    with pytest.raises(BadConfig, match=r"reasoning_wieght: unknown key; did you mean reasoning_weight"):
        resolved("--model", "reasoning", "--reasoning-wieght", "0.1")


def test_d_11_a_tree_without_ego_histories_is_refused_by_name(tmp_path: Path) -> None:
    config = load_config({"model": "baseline", "data_root": str(tmp_path)})
    told = r"train_ego_history\.npz; set data_root=DIR, or make it with python -m .* generate_ego_history --split all"
    with pytest.raises(BadConfig, match=told):
        source_root(config)
    assert source_root(load_config({"model": "baseline", "offline": True})) is None


def test_d_14_the_effective_batch_is_batch_times_accumulation() -> None:
    config = load_config({"model": "baseline", "batch_size": 8, "accumulation_steps": 4})
    assert (config.batch_size, config.gradient_accumulation_steps) == (8, 4)


@pytest.mark.parametrize("schedule", ["cosine", "constant"])
@pytest.mark.parametrize("warmup", [0, 5])
def test_d_15_the_learning_rate_of_ten_epochs(schedule: str, warmup: int) -> None:
    config = load_config({"model": "baseline", "lr_schedule": schedule, "warmup_epochs": warmup})
    factors = [RECIPE.lr_factor(config, Position(step, epoch_steps=(1,) * 10)) for step in range(10)]
    rise = [0.2, 0.4, 0.6, 0.8, 1.0][:warmup]
    cosine = {0: [1.0, 0.9755, 0.9045, 0.7939, 0.6545, 0.5, 0.3455, 0.2061, 0.0955, 0.0245],
              5: [1.0, 0.9045, 0.6545, 0.3455, 0.0955]}  # fmt: skip
    rest = cosine[warmup] if schedule == "cosine" else [1.0] * (10 - warmup)
    assert factors == pytest.approx([*rise, *rest], abs=1e-4)


def test_d_16_averaging_is_off_and_keeps_999_of_1000() -> None:
    configs = [load_config({"model": "baseline", "ema": on}) for on in (False, True)]
    assert [config.average_decay for config in configs] == [0.0, 0.999]


def test_d_21_tokens_of_a_direct_student_are_refused() -> None:
    with pytest.raises(BadConfig, match=r"discrete_actions: needs unicycle mode"):
        load_config({"model": "baseline", "discrete_actions": True, "no_unicycle": True})


@pytest.mark.parametrize(("key", "preset", "values"), [
    ("action_weight", "unicycle_stable", {"batch_size": 4}),
    ("action_weight", "fast_110m", {}),
    ("discrete_actions", "", {"model": "baseline", "discrete_actions": True}),
])  # fmt: skip
@pytest.mark.parametrize(("benchmark", "kind"), [("nuscenes", "raster"), ("argoverse2", "vector")])
def test_a_benchmark_has_no_actions_to_learn_from(
    benchmark: str, kind: str, key: str, preset: str, values: dict[str, Any]
) -> None:
    with pytest.raises(BadConfig, match=f"{key}: found .* beside benchmark '{benchmark}'.*set {key}="):
        load_config({"benchmark": benchmark, "input_type": kind, **values}, preset)


def test_keys_that_would_do_nothing_are_refused() -> None:
    with pytest.raises(BadConfig, match="action_weight: a direct student gives no actions"):
        load_config({"model": "baseline", "action_weight": 0.1, "no_unicycle": True})
    with pytest.raises(BadConfig, match=r"carla_root: unknown key; did you mean data_root"):
        resolved("--model", "baseline", "carla_root=somewhere")
    with pytest.raises(BadConfig, match="all_agents: found True beside benchmark 'nuscenes'"):
        load_config({"model": "baseline", "benchmark": "nuscenes", "input_type": "raster", "all_agents": True})


def test_d_29_resume_names_a_file_of_the_run_that_goes_on(tmp_path: Path) -> None:
    latest = tmp_path / "reasoning_seed42_latest.pt"
    latest.touch()
    run = local_run(
        with_flags(["recipe=distill", "--model", "reasoning", "--resume", str(latest), "--offline"]), [], {}
    )
    assert (run.keys.logdir, run.config.model, run.keys.seed) == (str(tmp_path), "reasoning", 42)
    other = tmp_path / "baseline_seed7_best.pt"
    other.touch()
    run = local_run(with_flags(["recipe=distill", "--resume", str(other), "--offline"]), [], {})
    assert (run.config.model, run.config.seed, run.keys.seed) == ("baseline", 7, 7)
    for word, told in (("model=reasoning", "model baseline"), ("seed=8", "seed 7")):
        with pytest.raises(
            BadConfig, match=f"{word.partition('=')[0]}: found .* is of a run with {told}; remove the key"
        ):
            resolved("--resume", str(other), word)
    with pytest.raises(BadConfig, match=r"resume: found '.*missing\.pt', expected a file"):
        resolved("--model", "reasoning", "--resume", str(tmp_path / "missing.pt"))
    copied = tmp_path / "copy.pt"
    copied.touch()
    run = local_run(with_flags(["recipe=distill", "--resume", str(copied), "--output-dir", "run", "--offline",
                                "--model", "reasoning"]), [], {})  # fmt: skip
    assert (run.keys.logdir, run.config.model) == ("run", "reasoning")
    with pytest.raises(BadConfig, match=r"resume: found '.*copy\.pt', expected a file .* with logdir"):
        resolved("--model", "reasoning", "--resume", str(copied))


@pytest.mark.parametrize(("values", "names"), [
    ({}, {1: ["best", "latest"], 5: ["best", "latest", "epoch5"], 6: ["best", "latest"]}),
    ({"save_final_only": True}, {1: ["best"], 5: ["best"], 6: ["best"]}),
])  # fmt: skip
def test_d_28_and_d_31_files_are_shown_as_the_guide_names_them(
    values: dict[str, Any], names: dict[int, list[str]]
) -> None:
    config = load_config({"model": "reasoning", "seed": 7, **values})
    assert RECIPE.files.shown is not None
    shown = {epoch: RECIPE.files.shown(config, epoch - 1, True, True) for epoch in names}
    assert shown == {epoch: [f"reasoning_seed7_{word}.pt" for word in words] for epoch, words in names.items()}
    assert RECIPE.files.names(config, CheckpointAt(epoch=4, step=50))["model"] == "reasoning_seed7_epoch5.pt"
    assert RECIPE.files.shown(config, 2, False, False) == []


PRESETS = {
    "unicycle_stable": {
        "model": "baseline", "model_size": "500m", "lr": 1e-5, "warmup_epochs": 0, "lr_schedule": "cosine",
        "grad_clip": 1.0, "ema": True, "ema_decay": 0.999, "action_weight": 0.1, "batch_size": 32, "epochs": 50,
        "patience": 15, "seed": 42,
    },
    "fast_110m": {
        "model": "baseline", "model_size": "110m", "lr": 5e-6, "warmup_epochs": 0, "lr_schedule": "cosine",
        "grad_clip": 1.0, "ema": True, "ema_decay": 0.999, "action_weight": 0.1, "batch_size": 32, "epochs": 50,
        "patience": 15,
    },
    "reasoning": {
        "model": "reasoning", "reasoning_weight": 0.25, "yaw_weight": 0.3, "batch_size": 48, "lr": 1e-4,
        "weight_decay": 0.02, "epochs": 150, "patience": 20, "seed": 42,
    },
    "direct": {
        "model": "reasoning", "no_unicycle": True, "reasoning_weight": 0.25, "yaw_weight": 0.3, "batch_size": 48,
        "lr": 1e-4, "epochs": 150, "seed": 42,
    },
}  # fmt: skip


@pytest.mark.parametrize(("row", "preset"), [*zip(("d_34", "d_35", "d_36", "d_37"), PRESETS, strict=True)])
def test_d_34_to_d_37_a_preset_is_the_guides_command_line(row: str, preset: str) -> None:
    assert values_in(PACKAGE, preset) == PRESETS[preset]
    resolved_keys = load_config({}, preset).model_dump()
    assert {key: resolved_keys[key] for key in PRESETS[preset]} == PRESETS[preset]


@pytest.mark.parametrize("benchmark", ["nuscenes", "argoverse2"])
def test_d_39_a_benchmark_without_its_root_is_refused(benchmark: str) -> None:
    kind = {"nuscenes": "raster", "argoverse2": "vector"}[benchmark]
    config = load_config({"model": "baseline", "benchmark": benchmark, "input_type": kind})
    with pytest.raises(BadConfig, match=f"{benchmark}_root"):
        source_root(config)


@pytest.mark.parametrize("benchmark", ["none", "nuscenes", "argoverse2"])
@pytest.mark.parametrize("kind", ["camera", "raster", "vector"])
def test_d_40_each_benchmark_has_one_kind_of_input(benchmark: str, kind: str) -> None:
    values = {"model": "baseline", "benchmark": benchmark, "input_type": kind}
    if (benchmark, kind) in {("none", "camera"), ("nuscenes", "raster"), ("argoverse2", "vector")}:
        assert load_config(values).input_type == kind
        return
    with pytest.raises(BadConfig, match=f"input_type: found '{kind}' beside benchmark '{benchmark}', expected"):
        load_config(values)


def test_d_41_there_are_one_or_six_modes() -> None:
    with pytest.raises(BadConfig, match=r"num_modes: found 3"):
        load_config({"model": "baseline", "num_modes": 3})
