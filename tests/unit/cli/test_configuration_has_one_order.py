"""Every source of configuration has its rank, and nothing that was said is ignored in silence."""

import json
from pathlib import Path

import pytest

from lead_trainer.errors import BadConfig
from lead_trainer.local.config_sources import parse_arguments, read_sources
from lead_trainer.local.job import session_cache_folder
from lead_trainer.local.run import local_run
from lead_trainer.recipes.lead.compat import Compat
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.config_values import to_config_json


def test_values_are_yaml_and_dots_make_mappings() -> None:
    words = ["batch_size=64", "lr=3e-4", "used_cameras=[true, false]", "--logdir=a b", "compat.lagging_lr=true", "x="]
    assert parse_arguments(words, "argument") == {
        "batch_size": 64,
        "lr": 3e-4,
        "used_cameras": [True, False],
        "logdir": "a b",
        "compat": {"lagging_lr": True},
        "x": "",
    }


def test_a_text_of_the_run_stays_as_it_was_typed() -> None:
    words = ["logdir=010", "load_file=1e3", "carla_root=2026-11-22", "wandb_project='a #b'", "session_cache=null"]
    said = {"logdir": "010", "load_file": "1e3", "carla_root": "2026-11-22", "wandb_project": "a #b"}
    assert parse_arguments(words, "argument") == {**said, "session_cache": None}


def test_a_path_below_the_home_is_one_wherever_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "run.yaml").write_text("session_cache: ~/ssd\ndata: {carla: ~/towns}\n")
    (tmp_path / "model_0030.pth").write_bytes(b"")
    sources = read_sources(["logdir=~/runs/a", "load_file=~/model_0030.pth"], [Path("~/run.yaml")], {})
    home = str(tmp_path)
    assert sources.merged() == {
        "session_cache": f"{home}/ssd",
        "data": {"carla": f"{home}/towns"},
        "logdir": f"{home}/runs/a",
        "load_file": f"{home}/model_0030.pth",
    }
    assert local_run(["logdir=~/runs/a"], [], {}).logdir == tmp_path / "runs/a"


def test_a_word_without_a_value_is_refused() -> None:
    with pytest.raises(BadConfig, match="expected key=value"):
        parse_arguments(["batch_size"], "argument")


def test_a_value_that_a_later_file_replaces_is_reported(tmp_path: Path) -> None:
    one, other = tmp_path / "one.yaml", tmp_path / "other.yaml"
    one.write_text("training: {batch_size: 4, num_epochs: 2}\nloss: {pred_weight: 1}\n")
    other.write_text("batch_size: 8\nloss: {recon_weight: 2}\ntraining: {num_epochs: 2}\n")
    run = local_run(["recipe=world"], [one, other], {})
    assert run.replaced == [f"batch_size: {other} has 8 where {one} has 4; the later file wins"]
    assert (run.config.batch_size, run.config.loss.pred_weight, run.config.loss.recon_weight) == (8, 1.0, 2.0)


def test_the_nearer_source_wins(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("lr: 0.1\nbatch_size: 8\nweight_decay: 0.5\nlogdir: out\nepochs: 5\n")
    environ = {"LEAD_TRAINING_CONFIG": "lr=0.2 batch_size=16"}
    config = local_run(["lr=0.3", "preset=demo"], [file], environ).config
    assert (config.lr, config.batch_size, config.weight_decay, config.epochs) == (0.3, 16, 0.5, 5)
    assert config.image_architecture == "test_resnet"  # of the preset


def test_mappings_are_merged_key_by_key_over_all_sources(tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("compat: lead\nlogdir: out\n")
    second.write_text("compat: {bf16_labels: false}\n")
    environ = {"LEAD_TRAINING_CONFIG": "compat.lagging_lr=false compat.painted_hdmap=false"}
    run = local_run(["compat.fixed_epoch_order=false", "compat.painted_hdmap=true"], [first, second], environ)
    off = {name for name, on in run.config.compat.model_dump().items() if not on}
    assert off == {"bf16_labels", "lagging_lr", "fixed_epoch_order"}
    assert local_run(["compat=fixed"], [first, second], environ).config.compat == Compat.fixed()


def test_a_switch_of_compat_leaves_the_others_as_the_stage_before_had_them(tmp_path: Path) -> None:
    (tmp_path / "model_0030.pth").write_bytes(b"")
    (tmp_path / "config.json").write_text(json.dumps({"compat": Compat.lead().model_dump()}))
    words = [f"load_file={tmp_path}/model_0030.pth", "logdir=new", "compat.fixed_epoch_order=false"]
    assert local_run(words, [], {}).config.compat == Compat.lead().model_copy(update={"fixed_epoch_order": False})


def test_skips_follow_the_waypoints_that_a_stage_changes(tmp_path: Path) -> None:
    (tmp_path / "model_0030.pth").write_bytes(b"")
    (tmp_path / "config.json").write_text(json.dumps(to_config_json(LeadConfig(skip_first_pretrain=3))))
    words = [f"load_file={tmp_path}/model_0030.pth", "logdir=new", "use_planning_decoder=true"]
    config = local_run([*words, "num_way_points_prediction=10"], [], {}).config
    assert (config.skip_first_pretrain, config.skip_first_posttrain, config.skip_last_posttrain) == (3, 10, 10)


def test_a_stage_takes_over_architecture_but_no_decision(tmp_path: Path) -> None:
    (tmp_path / "model_0030.pth").write_bytes(b"")
    before = {"image_architecture": "resnet18", "n_layer": 1, "epochs": 31, "logdir": "old", "seed": 7, "lr": 1.0}
    (tmp_path / "config.json").write_text(json.dumps({**before, "continue_failed_training": True}))
    words = [f"load_file={tmp_path}/model_0030.pth", "logdir=new", "use_planning_decoder=true", "n_layer=2"]
    config = local_run(words, [], {}).config
    assert (config.image_architecture, config.n_layer) == ("resnet18", 2)
    assert (config.seed, config.lr, config.logdir, config.continue_failed_training) == (0, 3e-4, "new", False)


def test_weights_of_cropped_pictures_are_refused_as_the_inputs_would_be_others(tmp_path: Path) -> None:
    (tmp_path / "model_0030.pth").write_bytes(b"")
    (tmp_path / "config.json").write_text(json.dumps({"horizontal_fov_reduction": 50}))
    with pytest.raises(BadConfig, match="horizontal_fov_reduction: has no effect here: pictures keep their sides"):
        local_run([f"load_file={tmp_path}/model_0030.pth", "logdir=new"], [], {})


def test_a_preset_wins_over_what_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "model_0030.pth").write_bytes(b"")
    (tmp_path / "config.json").write_text(json.dumps({"image_architecture": "resnet18", "n_head": 2}))
    config = local_run([f"load_file={tmp_path}/model_0030.pth", "logdir=new", "preset=demo"], [], {}).config
    assert (config.image_architecture, config.n_head) == ("test_resnet", 2)


@pytest.fixture
def after_a_held_out_town(tmp_path: Path) -> list[str]:
    """Words of a stage that begins with the weights of one on CARLA without Town13."""
    (tmp_path / "model_0030.pth").write_bytes(b"")
    (tmp_path / "config.json").write_text(json.dumps(to_config_json(LeadConfig(hold_out_town13_routes=True, LTF=True))))
    return [f"load_file={tmp_path}/model_0030.pth", "logdir=new"]


@pytest.mark.parametrize("preset", ["navsim", "waymo"])
def test_real_data_alone_may_follow_a_stage_that_held_a_town_out(after_a_held_out_town: list[str], preset: str) -> None:
    config = local_run([*after_a_held_out_town, f"preset={preset}"], [], {}).config
    assert config.hold_out_town13_routes  # so a later stage with CARLA is not trained on them unawares


def test_a_mix_that_would_train_on_a_town_held_out_before_is_refused_with_keys_to_set(
    after_a_held_out_town: list[str],
) -> None:
    words = [*after_a_held_out_town, "preset=carla_navsim"]
    with pytest.raises(BadConfig, match=r"hold_out_town13_routes: found true, but .* set it to false.*load_file"):
        local_run(words, [], {})
    instead = ["hold_out_town13_routes=false", "validation_towns=[Town13]", "validation_fraction=0.1"]
    assert local_run([*words, *instead], [], {}).config.validation_towns == ("Town13",)


def test_shards_are_kept_here_when_they_come_from_afar_or_when_told() -> None:
    plain, told = local_run(["logdir=out"], [], {}), local_run(["logdir=out", "session_cache=/ssd"], [], {})
    assert session_cache_folder(plain, {}) is None
    assert session_cache_folder(plain, {"LEAD_STORE_URL": "file:///store"}) is None
    assert session_cache_folder(plain, {"LEAD_STORE_URL": "s3://bucket"}) == Path("out/.lead/scratch/session-cache")
    assert session_cache_folder(told, {}) == Path("/ssd")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["logdir=x", "batchsize=4"], "batchsize: unknown key; did you mean batch_size"),
        (["logdir=x", "carlaroot=d"], "carlaroot: unknown key; did you mean"),
        (["logdir=x", "resume=maybe"], "resume: found 'maybe', expected auto or never"),
        (["logdir=x", "wandb_mode=on"], "wandb_mode: found True, expected online, offline or disabled"),
        (["logdir=x", "resume=never", "continue_failed_training=true"], "found true beside resume=never"),
        (["logdir=x", "save_model_checkpoint=false"], "could not resume or be evaluated"),
        (["logdir=x", "epochs=two"], "epochs: found 'two', expected int"),
        (
            ["logdir=x", "wandb_mode=ofline"],
            "expected online, offline or disabled; did you mean offline",
        ),
        (["logdir=x", "session_cache=false"], "session_cache: found False, expected str; write a text .* in quotes"),
        (["logdir=x", "on_best=1"], "on_best: found 1, expected bool"),
        (["logdir=x", "epochs=2.5", "seed=-1"], "epochs: found 2.5, expected int; seed: found -1, expected 0 or more"),
        (["logdir=x", "epochs=-1"], "epochs: found -1, expected 0 or more"),
        (
            ["logdir=x", "seeds=[1,-1]"],
            r"seeds: found \[1, -1\], expected a list of numbers, for example seeds=",
        ),
        (["logdir=x", "keep_lats=2"], "keep_lats: unknown key; did you mean 'keep_last'"),
        (["logdir=x", "every_epochs=-1"], "every_epochs: found -1, expected 0 or more"),
        (["logdir=x", "keep_last=-3"], "keep_last: found -3, expected 0 or more"),
        (["logdir=x", "seed=-1"], "seed: found -1, expected 0 or more"),
        (["logdir=x", "preset=dmeo"], "did you mean demo"),
        (["logdir=x", "recipe=led"], "expected one of distill, lead, nuplan, world; did you mean lead"),
        (["logdir=x", "load_file=missing.pth"], "load_file: there is no file missing.pth"),
        (["epochs=2"], "logdir is not set"),
    ],
)
def test_a_mistake_is_named_with_its_remedy(words: list[str], message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        local_run(words, [], {})
