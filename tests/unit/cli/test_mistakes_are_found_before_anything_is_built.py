"""A wrong key, type, preset or recipe costs no build, no place in a queue and no pulled image."""

from pathlib import Path

import pytest
import yaml

from lead_protocol.exit_codes import ExitCode
from lead_protocol.store.folder import FolderStore
from lead_trainer.cli import main
from lead_trainer.commands.train import check_before_build
from lead_trainer.errors import BadConfig
from lead_trainer.local.run import local_run

RUN = {
    "apiVersion": "lead.dev/v1alpha1",
    "kind": "TrainingRun",
    "metadata": {"name": "towns"},
    "spec": {
        "recipe": "lead",
        "preset": "demo",
        "datasets": [{"cacheRef": {"name": "towns"}}],
        "stages": [{"name": "pretrain", "epochs": 2}, {"name": "posttrain", "epochs": 2}],
    },
}
CACHE = {
    "apiVersion": "lead.dev/v1alpha1",
    "kind": "DatasetCache",
    "metadata": {"name": "towns"},
    "spec": {"recipe": "lead", "source": {"prefix": "datasets/towns"}},
}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["recipe=led"], "recipe: found 'led', expected one of distill, lead, nuplan, world; did you mean lead?"),
        (["preset=dem"], "did you mean demo"),
        (["batchsize=4"], "did you mean batch_size"),
        (["batch_size=many"], "batch_size: found 'many'"),
        (["image_architecture=resnet35"], "timm has no model 'resnet35'; near: resnet50, resnet34"),
        (["backbone_weights=none.safetensors"], "backbone_weights: no file at none.safetensors"),
        (["load_file=README"], "load_file: README is no file of weights"),
        (["num_way_points_prediction=11", "waypoints_spacing=10"], "110 steps ahead, caches hold 100"),
        (["best_metric=loss of all"], "best_metric: found 'loss of all'"),
        (["continue_epoch=true"], "continue_epoch: has no effect here: LEAD itself reads it no more"),
        (["gradient_accumulation_steps=0"], "gradient_accumulation_steps: found 0"),
    ],
)
def test_a_local_run_is_refused_before_its_cache_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("README").write_text("no weights")
    Path("data").mkdir()  # a build would end in BAD_DATA: there is nothing in it
    told = [word.partition("=")[0] for word in words]
    usual = [word for word in ("recipe=lead", "preset=demo") if word.partition("=")[0] not in told]
    code = main(["train", *usual, "carla_root=data", "logdir=out", *words])
    assert code == ExitCode.BAD_CONFIG
    sentence = capsys.readouterr().err.strip().splitlines()[-1]
    assert said in sentence
    assert not Path("data/cache").exists()


def test_a_batch_that_processes_cannot_share_is_refused_before_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = local_run(["preset=demo", f"carla_root={tmp_path}", f"logdir={tmp_path}", "batch_size=5"], [], {})
    with pytest.raises(BadConfig, match="batch_size: found 5, expected a multiple of the 2 processes"):
        check_before_build(run, FolderStore(tmp_path / ".lead"), ranks=2)


def rendered(folder: Path, *documents: object) -> int:
    file = folder / "run.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    return main(["render", str(file)])


def test_render_holds_every_job_against_its_recipe(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert rendered(tmp_path, CACHE, RUN) == ExitCode.DONE
    assert capfd.readouterr().err == ""
    wrong = yaml.safe_load(yaml.safe_dump(RUN))
    wrong["spec"]["stages"][1]["config"] = {"use_planing_decoder": True}
    cache = yaml.safe_load(yaml.safe_dump(CACHE))
    cache["spec"]["config"] = {"preset": "dem"}
    assert rendered(tmp_path, cache, wrong) == ExitCode.BAD_CONFIG
    told = capfd.readouterr()
    assert "kind: Pod" in told.out
    of_cache, of_run = told.err.splitlines()
    assert "DatasetCache towns: preset: found 'dem'" in of_cache and "did you mean demo?" in of_cache
    assert "stage posttrain: use_planing_decoder: unknown key; did you mean use_planning_decoder?" in of_run


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("preset", "defualt", "did you mean default"),
        ("recipe", "leed", "did you mean 'lead'?"),
        ("config", {"image_architecture": "resnet35"}, "timm has no model 'resnet35'"),
        ("config", {"logdir": "/data"}, "in a cluster the storage profile sets this"),
        ("config", {"lr": "fast"}, "lr: found 'fast'"),
    ],
)
def test_render_names_what_a_pod_would_be_refused_for(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], field: str, value: object, said: str
) -> None:
    wrong = yaml.safe_load(yaml.safe_dump(RUN))
    wrong["spec"][field] = value
    assert rendered(tmp_path, wrong) == ExitCode.BAD_CONFIG
    assert said in capfd.readouterr().err
