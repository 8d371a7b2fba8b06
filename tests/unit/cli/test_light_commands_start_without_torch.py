"""Commands that compute nothing with torch do not wait for it, and work where it is not installed."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from lead_operator.names import Label
from lead_protocol.exit_codes import ExitCode
from lead_testing import PROJECT_ROOT
from lead_testing.toy_runs import toy_recipe_installed
from lead_trainer.cli import OF_TRAINER, main
from lead_trainer.commands.logs import RUN_LABEL
from lead_trainer.example_worlds.lead.tree import write_example_tree

WITHOUT_TRAINER = """
import sys
import importlib.util
from importlib.util import find_spec
from lead_trainer.cli import OF_TRAINER, main

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in OF_TRAINER - {"numpy"}:  # which tensorboard brings
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])

sys.meta_path.insert(0, Absent())
importlib.util.find_spec = lambda name: None if name in OF_TRAINER else find_spec(name)
sys.exit(main(sys.argv[1:]))
"""
KUBECTL = """#!/bin/sh
case "$*" in
  *"-o json"*) echo '{"items": []}' ;;
  *) echo "kubectl $*" ;;
esac
"""
PROGRAM = """
import sys
from lead_trainer.cli import main
try:
    ended = main(sys.argv[1:])
except SystemExit as error:
    ended = error.code  # --help
print(ended, *sorted({"torch", "torchvision", "timm", "wandb", "scipy"} & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("words", "ended"),
    [
        ("--help", 0),
        ("example-data other --routes 1 --frames 2", 0),
        ("config", 0),
        ("config recipe=distill preset=tiny", 0),
        ("buckets preset=demo carla_root=tree", 0),
        ("cache preset=demo carla_root=tree", 0),
        ("fsck nowhere", ExitCode.BAD_CONFIG),
        ("export nowhere bundle", ExitCode.BAD_CONFIG),
        ("compare-perf nowhere nowhere", ExitCode.BAD_CONFIG),
        ("train preset=demo carla_root=tree logdir=out batchsize=2", ExitCode.BAD_CONFIG),
    ],
)
def test_a_light_command_loads_no_torch(tmp_path: Path, words: str, ended: int) -> None:
    if "=tree" in words:
        write_example_tree(tmp_path / "tree", routes=1, frames=4)
    command = [sys.executable, "-c", PROGRAM, *words.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines()[-1:] == [f"{int(ended)}"], done.stderr


def lead(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs a command in a process in which nothing of the extra `trainer` can be imported, with a kubectl of ours."""
    kubectl = folder / "bin/kubectl"
    kubectl.parent.mkdir(exist_ok=True)
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    environ = {**os.environ, "PATH": f"{kubectl.parent}:{os.environ['PATH']}", "LEAD_STORE_URL": f"file://{folder}"}
    command = [sys.executable, "-c", WITHOUT_TRAINER, *words]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=300)


def test_looking_after_runs_needs_no_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with toy_recipe_installed(tmp_path):
        assert main(["train", "recipe=toy", "logdir=run", "epochs=1"]) == ExitCode.DONE
    for words, said in (
        (["fsck", "run"], "1 checkpoints checked, 0 findings"),
        (["export", "run", "bundle"], "config.json is as the run wrote it"),
        (["runs"], "kubectl get trainingruns --all-namespaces"),
        (["logs", "night", "-n", "team", "-f"], f"--selector {RUN_LABEL}=night --prefix"),
    ):
        done = lead(tmp_path, *words)
        assert (done.returncode, done.stderr) == (ExitCode.DONE, ""), words
        assert said in done.stdout
    assert sorted(path.name for path in Path("bundle").iterdir()) == ["config.json", "model_0000_0.pth"]
    assert Path("bundle/model_0000_0.pth").read_bytes() == Path("run/model_0000.pth").read_bytes()


def test_render_without_recipes_says_that_keys_are_not_checked(tmp_path: Path) -> None:
    spec = {"recipe": "lead", "source": {"prefix": "datasets/towns"}}
    body = {"apiVersion": "lead.dev/v1alpha1", "kind": "DatasetCache", "metadata": {"name": "towns"}, "spec": spec}
    (tmp_path / "cache.yaml").write_text(yaml.safe_dump(body))
    done = lead(tmp_path, "render", "cache.yaml")
    assert done.returncode == ExitCode.DONE and "kind: Pod" in done.stdout
    assert done.stderr == "keys are not checked: torch is not installed: pip install 'lead-k8s[trainer]'\n"


@pytest.mark.parametrize("words", [["train", "logdir=out", "carla_root=data"], ["config"], ["example-data", "tree"]])
def test_a_command_that_needs_more_says_which_extra(tmp_path: Path, words: list[str]) -> None:
    done = lead(tmp_path, *words)
    assert done.returncode == ExitCode.BAD_CONFIG
    (sentence,) = done.stderr.strip().splitlines()
    assert sentence.startswith(f"error: lead {words[0]} needs more: ")
    assert sentence.endswith("is not installed: pip install 'lead-k8s[trainer]'")


@pytest.mark.parametrize("command", ["fsck", "export", "train", "logs"])
def test_the_usage_of_a_command_can_be_typed(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert capsys.readouterr().out.startswith(f"usage: lead {command} [-h]")


def test_the_extra_cli_is_small_and_part_of_the_trainers() -> None:
    extras = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras["cli"]) <= set(extras["trainer"])  # so every lock holds it
    modules = {"opencv-python-headless": "cv2", "pillow": "PIL", "nvidia-ml-py": "pynvml"}
    named = {Requirement(line).name for line in set(extras["trainer"]) - set(extras["cli"])}
    assert {modules.get(name, name) for name in named} == set(OF_TRAINER)
    assert RUN_LABEL == Label.RUN
