"""A sweep over the learning rate with Optuna: it asks for values, a TrainingRun tries them, its status prunes them.

    pip install optuna
    python -m lead_client.examples.optuna_sweep carla-demo --trials 8 --at-once 2              # on the current cluster
    python -m lead_client.examples.optuna_sweep carla-demo --local runs carla_root=data/example  # on this machine

The study is a file: the same command again goes on with it. A pruned run is deleted; its checkpoints stay.
"""

import argparse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import optuna
from optuna.trial import Trial, TrialState

from lead_client import Cluster, DatasetCache, Local, Run, TrainingRun
from lead_client.errors import RunFailed

LOSS = "loss"


def sweep(
    study: optuna.Study,
    where: Cluster | Local,
    run_of: Callable[[Trial], TrainingRun],
    *,
    trials: int,
    at_once: int = 1,
    metric: str = LOSS,
) -> None:
    """Tries `trials` values, `at_once` side by side.

    `metric` is `loss` or a name in `status.stages[].progress.metrics`, such as `val/loss`.
    """

    def one(_: int) -> None:
        trial = study.ask()
        run = where.submit(run_of(trial))
        value = followed(run, trial, metric)
        state = TrialState.PRUNED if value is None and trial.should_prune() else TrialState.FAIL
        study.tell(trial, value, state if value is None else TrialState.COMPLETE)

    with ThreadPoolExecutor(at_once) as threads:
        list(threads.map(one, range(trials)))


def followed(run: Run, trial: Trial, metric: str) -> float | None:
    """Reports the metric of each epoch to the trial; returns the last one, None where the run was pruned or failed."""
    value, seen = None, 0
    try:
        for status in run.changes():
            progress = (status.stages or [])[-1].progress if status.stages else None
            if progress is not None and (progress.epoch or 0) > seen:
                found = progress.loss if metric == LOSS else (progress.metrics or {}).get(metric)
                if found is not None:
                    value, seen = float(found), progress.epoch or 0
                    trial.report(value, seen)
                    if trial.should_prune() and status.phase not in run.ended:
                        run.delete()
                        return None
            if status.phase in run.ended:
                return float(value) if value is not None and status.phase == "Succeeded" else None
    except RunFailed:
        return None
    return None


def learning_rate_run(trial: Trial, cache: str, *, recipe: str, preset: str, epochs: int, study: str) -> TrainingRun:
    """Returns a run that trains with the trial's learning rate."""
    return TrainingRun(
        f"{study}-{trial.number}",
        recipe=recipe,
        preset=preset or None,
        datasets=[{"cache_ref": {"name": cache}}],
        stages=[{"name": "train", "epochs": epochs}],
        config={"lr": trial.suggest_float("lr", 1e-5, 1e-2, log=True)},
        labels={"study": study},
    )


def main() -> None:
    """Reads the command line, sweeps, and prints every trial."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cache", help="name of a DatasetCache")
    parser.add_argument("keys", nargs="*", metavar="key=value", help="with --local: keys that name places here")
    parser.add_argument("--local", metavar="FOLDER", help="train on this machine, in this folder")
    parser.add_argument("--recipe", default="lead")
    parser.add_argument("--preset", default="demo")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--study", default="sweep")
    options = parser.parse_args()
    where: Cluster | Local = Cluster()
    if options.local:
        keys: dict[str, Any] = dict(key.split("=", 1) for key in options.keys)
        where = Local(options.local, **keys)
        source = {"prefix": "datasets/here"}  # the keys name the place on this machine
        where.submit(
            DatasetCache(options.cache, recipe=options.recipe, source=source, config={"preset": options.preset})
        )
    study = optuna.create_study(
        study_name=options.study,
        storage=f"sqlite:///{options.study}.db",
        load_if_exists=True,
        direction="minimize",
        pruner=optuna.pruners.MedianPruner(n_startup_trials=2),
    )
    given = {"recipe": options.recipe, "preset": options.preset, "epochs": options.epochs, "study": options.study}
    sweep(study, where, lambda trial: learning_rate_run(trial, options.cache, **given), trials=options.trials,
          at_once=options.at_once)  # fmt: skip
    print(study.trials_dataframe(attrs=("number", "params", "value", "state")).to_string(index=False))


if __name__ == "__main__":
    main()
