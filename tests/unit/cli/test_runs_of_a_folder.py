"""`lead runs DIR` lists the runs below a folder, as `kubectl get` lists those of a cluster."""

import re
from pathlib import Path

import pytest

from lead_protocol.exit_codes import ExitCode
from lead_testing.toy_runs import counting_calls, toy_recipe_installed
from lead_trainer.cli import main
from lead_trainer.engine.group.stop import StopFlag
from lead_trainer.local.listing import short_duration

TRAIN = ["train", "recipe=toy", "epochs=2"]


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_the_runs_of_a_folder_are_listed_with_phase_progress_and_the_course_of_the_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with toy_recipe_installed(tmp_path):
        assert main([*TRAIN, "logdir=out/day/one"]) == ExitCode.DONE
        assert main([*TRAIN, "logdir=out/seeds", "seeds=[0,1]"]) == ExitCode.DONE
        with counting_calls(StopFlag(), 0, 0):
            assert main([*TRAIN, "logdir=out/bad", "lr=nan"]) != ExitCode.DONE
    capsys.readouterr()
    assert main(["runs", "out"]) == ExitCode.DONE
    heading, *found = rows(capsys.readouterr().out)
    assert heading == ["NAME", "PHASE", "EPOCH", "LOSS", "RATE", "ETA", "CKPT", "AGE", "LOSS", "BY", "EPOCH"]
    assert [row[:3] for row in found if row[0] != "bad"] == [
        ["day/one", "Succeeded", "2/2"], ["seeds/seed_0", "Succeeded", "2/2"], ["seeds/seed_1", "Succeeded", "2/2"],
    ]  # fmt: skip
    assert all(re.fullmatch(r"[▁▂▃▄▅▆▇█]{2}", row[-1]) for row in found if row[0] != "bad")
    assert main(["runs", "out/day/one"]) == ExitCode.DONE
    assert rows(capsys.readouterr().out)[1][:2] == ["one", "Succeeded"]


def test_a_run_that_was_killed_or_is_trained_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import fcntl

    from lead_protocol.object_keys import InstanceKeys
    from lead_protocol.progress_record import ProgressRecord, to_bytes
    from lead_protocol.store.folder import FolderStore

    monkeypatch.chdir(tmp_path)
    keys, store = InstanceKeys("local", "local", "train", 0), FolderStore(tmp_path / "run/.lead")
    record = ProgressRecord(attempt=1, seq=1, phase="Training", epoch=1, epochs=4, step=9, steps=36, loss=0.51234,
                            samples_per_s=12.3, eta_s=200.0)  # fmt: skip
    store.put(keys.progress(1), to_bytes(record))
    store.put(keys.attempt(1), b"{}")
    with (tmp_path / "run/.lead/train-s0.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert main(["runs", "."]) == ExitCode.DONE
        assert rows(capsys.readouterr().out)[1][:6] == ["run", "Running", "1/4", "0.5123", "12.3/s", "3m"]
    assert main(["runs", "."]) == ExitCode.DONE
    assert rows(capsys.readouterr().out)[1][:4] == ["run", "Interrupted", "1/4", "0.5123"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["runs", "absent"], "runs: there is no folder absent; name one that holds logdirs of lead train"),
        (["runs", "."], "runs: . holds no run; name a folder that holds logdirs of lead train"),
        (["runs", ".", "-n", "team"], "runs: -n team is of a cluster, and . is a folder; leave one of them out"),
    ],
)
def test_a_folder_without_runs_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == ExitCode.BAD_CONFIG
    assert capsys.readouterr().err == f"error: {sentence}\n"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172800, "2d")]
)
def test_a_time_is_printed_as_kubectl_prints_ages(seconds: float, text: str) -> None:
    assert short_duration(seconds) == text
