"""The examples of the client do what they promise: the notebook is executed, the sweep prunes, Katib's Job is valid."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import optuna
import pytest
import yaml
from nbclient import NotebookClient
from optuna.trial import Trial, TrialState

from lead_client import DatasetCache, Local, TrainingRun
from lead_client.examples.katib_trial import options_of
from lead_client.examples.optuna_sweep import sweep
from lead_testing import PROJECT_ROOT
from lead_testing.toy_jobs import toy_environment
from lead_testing.toy_runs import toy_recipe_installed

EXAMPLES = PROJECT_ROOT / "operator/lead_client/examples"


def test_the_notebook_trains_plots_and_loads_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.delenv("LEAD_STORE_URL", raising=False)
    notebook = nbformat.read(EXAMPLES / "first_run.ipynb", as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells)  # they are made here, and not checked in
    NotebookClient(notebook, timeout=540, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    shown = [output["data"] for output in outputs if "data" in output]
    assert sum("image/png" in each for each in shown) == 1
    texts = [each.get("text/plain", "") for each in shown]
    assert any("████████████████████████ 100%  Succeeded  posttrain" in text for text in texts)
    assert any(text.isdigit() and int(text) > 10_000 for text in texts)
    assert any("'config.json'" in text and "model_0000.pth" in text for text in texts)
    assert (tmp_path / "bundle/config.json").is_file()


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Local]:
    for name, value in toy_environment(tmp_path, tmp_path / "unused").items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("LEAD_STORE_URL")
    with toy_recipe_installed(tmp_path):
        here = Local(tmp_path / "runs")
        here.submit(DatasetCache("points", recipe="toy", source={"prefix": "datasets/points"}))
        yield here
        for run in here.list():
            run.delete()


def test_a_sweep_completes_prunes_and_records_what_failed(local: Local) -> None:
    study = optuna.create_study(
        direction="minimize", pruner=optuna.pruners.ThresholdPruner(upper=0.0, n_warmup_steps=3)
    )

    def run_of(trial: Trial) -> TrainingRun:
        # The first ends before the third epoch, after which all are pruned: the second would train for hours.
        epochs = [2, 100_000, 1][trial.number]
        wrong = {"learning": 1} if trial.number == 2 else {}
        return TrainingRun(f"trial-{trial.number}", recipe="toy", datasets=[{"cache_ref": {"name": "points"}}],
                           config={"lr": trial.suggest_float("lr", 1e-3, 0.1), **wrong},
                           stages=[{"name": "train", "epochs": epochs}])  # fmt: skip

    sweep(study, local, run_of, trials=3)
    assert [each.state for each in study.trials] == [TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL]
    assert study.best_trial.number == 0 and set(study.trials[0].intermediate_values) <= {1, 2}
    assert [run.name for run in local.list()] == ["trial-0", "trial-2"]  # the pruned one is deleted


def test_katibs_trial_calls_the_program_with_its_options_and_rights() -> None:
    account, role, binding, experiment = yaml.safe_load_all((EXAMPLES / "katib_sweep.yaml").read_text())
    spec, trial = experiment["spec"], experiment["spec"]["trialTemplate"]
    swept = {each["name"] for each in spec["parameters"]}
    given = {each["name"]: each["reference"] for each in trial["trialParameters"]}
    assert given == {"learningRate": "lr", "trialName": "${trialSpec.Name}"} and swept == {"lr"}
    pod = trial["trialSpec"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["name"] == trial["primaryContainerName"]
    assert container["command"] == ["python3", "-m", "lead_client.examples.katib_trial"]
    values = {"learningRate": "0.001", "trialName": "lead-lr-x1"}
    arguments = [filled(each, values) for each in container["args"]]
    options = options_of(arguments)
    assert (options.name, options.lr, options.cache) == ("lead-lr-x1", 0.001, "carla-demo")
    assert binding["subjects"][0]["name"] == account["metadata"]["name"] == pod["serviceAccountName"]
    (rule,) = role["rules"]
    assert {"get", "watch", "create", "patch", "delete"} <= set(rule["verbs"]) and "secrets" not in str(role)


def filled(text: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"${{trialParameters.{name}}}", value)
    assert "${" not in text
    return text
