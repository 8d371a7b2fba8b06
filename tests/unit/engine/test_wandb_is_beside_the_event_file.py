"""W&B gets the event file's scalars, a resumed attempt continues its run, and its troubles never stop training."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb
from wandb.proto import wandb_internal_pb2

from lead_protocol.exit_codes import ExitCode
from lead_protocol.job import LoggingPolicy
from lead_protocol.store.folder import FolderStore
from lead_testing.toy_jobs import KEYS, a_toy_job
from lead_testing.toy_runs import toy_recipe_installed, train_here
from lead_trainer.cli import main
from lead_trainer.recipes.lead.recipe import RECIPE
from lead_trainer.report.wandb import WandbKeys, wandb_settings

OFFLINE = LoggingPolicy(wandb_project="night", wandb_mode="offline")


@pytest.fixture(autouse=True)
def nobody_is_logged_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "wandb-config"))
    monkeypatch.setenv("WANDB__SERVICE_WAIT", "300")  # its process starts as slowly as a busy machine lets it


def records(data: bytes) -> Iterator[bytes]:
    """Yields the records of an offline file: LevelDB's log format behind 7 bytes of W&B's own."""
    block, header, at, record = 32768, 7, 7, b""
    while at + header <= len(data):
        if block - at % block < header:
            at += block - at % block
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + header])
        record += data[at + header : at + header + length]
        at += header + length
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


def recorded(path: Path) -> tuple[Any, dict[int, dict[str, str]]]:
    """Returns the run's record and its history by step, of one offline file."""
    run, history = None, {}
    for data in records(path.read_bytes()):
        record = wandb_internal_pb2.Record.FromString(data)
        run = record.run if record.HasField("run") else run
        if record.HasField("history"):
            items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
            history[record.history.step.num] = items
    return run, history


def test_both_attempts_of_a_run_are_one_wandb_run_in_the_store(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    job = a_toy_job(epochs=1, logging=OFFLINE)
    assert train_here(store, tmp_path, job, stop_in_call=3) == ExitCode.STOPPED
    assert train_here(store, tmp_path, a_toy_job(2, epochs=1, logging=OFFLINE)) == ExitCode.DONE
    prefix = f"{KEYS.tensorboard_prefix}wandb/"
    files = sorted(info.key for info in store.list(prefix) if info.key.endswith(".wandb"))
    assert len(files) == 2 and len({Path(key).name for key in files}) == 1  # run-<id>.wandb, one an attempt
    steps: dict[int, dict[str, str]] = {}
    for key in files:
        run, history = recorded(tmp_path / "store" / key)
        assert (run.project, run.display_name) == ("night", "toy-train-s0")
        steps |= history
    assert sorted(steps) == [1, 2, 3, 4, 5, 6]
    assert {"train/loss", "train/lr_0", "train/loss_plane"} <= steps[4].keys()
    assert "epoch/loss" in steps[6]


def test_a_local_run_has_its_offline_files_once_and_tells_how_to_sync_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with toy_recipe_installed(tmp_path):
        words = ["train", "recipe=toy", "logdir=run", "epochs=1", "wandb_mode=offline", "wandb_project=night"]
        assert main(words) == ExitCode.DONE
    (file,) = Path("run").rglob("*.wandb")
    assert file.parent.parent == Path("run/wandb")
    assert f"wandb sync {file.parent.resolve()}" in "".join(capfd.readouterr())


def test_a_missing_key_is_one_warning_and_training_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    online = LoggingPolicy(wandb_project="night", wandb_mode="online")
    job = a_toy_job(epochs=1, logging=online)
    assert train_here(FolderStore(tmp_path / "store"), tmp_path, job) == ExitCode.DONE
    output = "".join(capsys.readouterr())
    assert output.count("W&B is off for this attempt") == 1 and "No API key" in output


def test_an_error_in_the_middle_is_one_warning_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*arguments: Any, **options: Any) -> None:
        raise ConnectionError("the service is gone")

    monkeypatch.setattr(wandb.Run, "log", broken)
    assert train_here(FolderStore(tmp_path / "store"), tmp_path, a_toy_job(epochs=1, logging=OFFLINE)) == ExitCode.DONE
    assert "".join(capsys.readouterr()).count("W&B is off for this attempt") == 1


def test_the_job_wins_over_the_recipes_keys_and_every_key_has_its_place() -> None:
    values = {"log_wandb": True, "wandb_id": "abc", "wandb_resume": "must", "id": "big", "description": "why"}
    keys = RECIPE.reports.wandb(RECIPE.config({**values, "use_planning_decoder": True}))
    asked = wandb_settings(a_toy_job(), keys, {})
    assert asked is not None
    assert (asked.mode, asked.project, asked.id, asked.resume) == ("online", "lead_posttrain", "abc", "must")
    assert (asked.name, asked.notes) == ("why", "big")  # LEAD's name of a run is its description
    told = wandb_settings(a_toy_job(logging=OFFLINE), keys, {})
    assert told is not None and (told.mode, told.project) == ("offline", "night")
    assert wandb_settings(a_toy_job(), WandbKeys(), {}) is None
    assert wandb_settings(a_toy_job(), keys, {"WANDB_MODE": "disabled"}) is None


def test_the_run_id_follows_the_stage_instance() -> None:
    def run_id(job: Any, **options: str) -> str:
        settings = wandb_settings(job, WandbKeys(), {}, **options)
        assert settings is not None and settings.resume == "allow"
        return settings.id

    first = run_id(a_toy_job(logging=OFFLINE))
    assert run_id(a_toy_job(2, logging=OFFLINE)) == first
    assert run_id(a_toy_job(stage="posttrain", logging=OFFLINE)) != first
    assert run_id(a_toy_job(logging=OFFLINE), identity="another logdir") != first
    assert run_id(a_toy_job(2, resume="Never", logging=OFFLINE)) != first
