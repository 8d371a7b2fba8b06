"""`lead_client` on a real cluster: the page's ten lines, from a manifest to a plot and a model, and a sweep by Optuna.

A user of the namespace with no more rights than the role `edit` does it, through a port that kubectl forwards.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
import torch
import yaml
from optuna.trial import TrialState

from lead_client import Cluster, DatasetCache, TrainingRun
from lead_client.errors import RunFailed
from lead_client.examples.optuna_sweep import learning_rate_run, sweep
from lead_testing import PROJECT_ROOT
from lead_testing.installed import Installed, upload_tree

PAGE = PROJECT_ROOT / "operator/lead_client/README.md"
PREFIX = "datasets/carla_demo"  # as in the manifest of the page
LONGEST_S = 600


@pytest.fixture(scope="module")
def editor(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kubeconfig of a user with the role `edit` in the namespace, and nothing else."""
    installed.grant("editor", "edit")
    document = yaml.safe_load(installed.read("config", "view", "--raw", "--minify"))
    document["users"][0]["user"] = {"token": installed.token("editor")}
    document["contexts"][0]["context"]["namespace"] = installed.namespace
    path = tmp_path_factory.mktemp("editor") / "kubeconfig"
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def current(
    installed: Installed, editor: Path, lead_tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The environment of that user's shell, in a folder with the manifests of the page."""
    for name, value in installed.cluster.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KUBECONFIG", str(editor))
    monkeypatch.delenv("LEAD_STORE_URL", raising=False)
    (tmp_path / "crds").symlink_to(PROJECT_ROOT / "crds")
    monkeypatch.chdir(tmp_path)
    with installed.store() as store:
        if next(store.list(f"{PREFIX}/"), None) is None:
            upload_tree(store, lead_tree, PREFIX)
    yield tmp_path


def test_the_ten_lines_train_plot_and_load_a_model(current: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = re.search(r"## Ten lines\n\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found and len([line for line in found[1].splitlines() if line.strip()]) <= 10
    import matplotlib

    matplotlib.use("agg")
    names: dict[str, Any] = {}
    exec(compile(found[1], str(PAGE), "exec"), names)
    assert names["run"].status().phase == "Succeeded"
    assert "TrainingRun lead-demo: Succeeded  posttrain" in capsys.readouterr().out
    frame = names["run"].metrics("epoch/loss")
    assert set(frame.index.get_level_values("stage")) == {"pretrain", "posttrain"}
    assert frame["epoch/loss"].notna().all() and len(frame) == 12
    bundle = current / "bundle"
    weights = torch.load(next(bundle.glob("model_*.pth")), weights_only=True)
    assert {"config.json"} < {path.name for path in bundle.iterdir()}
    assert set(weights) == set(names["model"].state_dict()) and not names["model"].training
    assert any("epoch done" in line for line in names["run"].logs())


def test_a_sweep_by_optuna_completes_prunes_and_frees_the_nodes(current: Path, installed: Installed) -> None:
    here = Cluster()
    assert here.submit(DatasetCache("carla-demo", recipe="lead", source={"prefix": PREFIX},
                                    collections=["full_pretrain", "full_posttrain"],
                                    config={"preset": "demo"})).wait(LONGEST_S).phase == "Ready"  # fmt: skip
    study = optuna.create_study(pruner=optuna.pruners.ThresholdPruner(upper=0.0, n_warmup_steps=3))

    def run_of(trial: optuna.trial.Trial) -> TrainingRun:
        epochs = [2, 500][trial.number]  # pruned after the third epoch
        return learning_rate_run(trial, "carla-demo", recipe="lead", preset="demo", epochs=epochs, study="sweep")

    sweep(study, here, run_of, trials=2)
    assert [each.state for each in study.trials] == [TrialState.COMPLETE, TrialState.PRUNED]
    assert "sweep-1" not in [run.name for run in here.list()]
    installed.wait_for(
        "the pruned run's pods to be gone",
        lambda: not installed.items("pods", "lead.dev/run=sweep-1"),
        deadline_s=LONGEST_S,
    )


def test_a_wrong_key_fails_with_the_recipes_sentence(current: Path) -> None:
    run = Cluster().submit(TrainingRun("typo", recipe="lead", preset="demo", config={"batchsize": 2},
                                       datasets=[{"cache_ref": {"name": "carla-demo"}}]))  # fmt: skip
    with pytest.raises(RunFailed, match="batchsize") as caught:
        run.wait(LONGEST_S)
    assert caught.value.reason == "BadConfig" and "batch_size" in str(caught.value)
    run.delete()
