"""`lead closed-loop`: drive with a local run's newest weights in a simulator, or read the results of a drive."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lead_protocol.manifests import CheckpointManifest
from lead_protocol.object_keys import InstanceKeys
from lead_trainer.closed_loop.drive import CHECKPOINT, Drive, all_numbers, drive, is_done, numbers_of
from lead_trainer.closed_loop.result_folder import Evaluation, read_results
from lead_trainer.commands.export import export_run
from lead_trainer.engine.checkpoints.instances import instance_manifests, instances
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.local.logdir import hold_lock
from lead_trainer.local.store import NAMESPACE, UID, logdirs_of, store_in

FOLDER = "closed_loop"  # in the logdir, as below a run's prefix in a store
REGRESSION = 1  # exit status
LOG_COLUMNS = 120  # without a terminal


@dataclass(frozen=True)
class _Newest:
    keys: InstanceKeys
    manifest: CheckpointManifest

    @property
    def folder(self) -> str:
        return f"{FOLDER}/{self.keys.name}/{self.manifest.epoch:04d}"


def closed_loop(
    logdir: Path | None,
    simulator: str,
    routes: str,
    stage: str,
    timeout: float,
    metric: str,
    max_drop: float | None,
    results: Path | None,
    environ: Mapping[str, str],
) -> int:
    """Evaluates the newest weights, or reads `results`; returns 1 where `metric` fell by more than `max_drop`."""
    if (logdir is None) == (results is None):
        raise BadConfig("closed-loop: expected a logdir of lead train with --command, or --results FOLDER alone")
    if results is not None:
        if simulator:
            raise BadConfig("closed-loop: --results reads what was driven, and --command drives; leave one of them out")
        show(str(results), read_results(results))
        return 0
    assert logdir is not None
    if not simulator:
        raise BadConfig("closed-loop: --command is missing, expected the command that drives and writes result files")
    if timeout <= 0.0:
        raise BadConfig(f"--timeout: found {timeout:g}, expected seconds above 0")
    newest = _newest(logdir, stage)
    hold_lock(logdir, FOLDER, "drives with the weights")
    folder = logdir / newest.folder
    if is_done(folder):
        print(f"{folder} was driven already; remove it to drive once more")
    else:
        (folder / CHECKPOINT).mkdir(parents=True, exist_ok=True)
        for file in (folder / CHECKPOINT).iterdir():  # of a call that was interrupted
            file.unlink()
        export_run(str(logdir), folder / CHECKPOINT, newest.keys.stage, None, environ)
        given = Drive(
            folder=folder, command=simulator, routes=routes, seed=newest.keys.seed,
            epoch=newest.manifest.epoch, timeout_s=timeout,
        )  # fmt: skip
        show(str(folder), drive(given, environ))
    return REGRESSION if _has_regressed(folder, metric, max_drop) else 0


def _newest(logdir: Path, stage: str) -> _Newest:
    """Returns the newest checkpoint of an epoch's end; raises BadConfig or BadData."""
    logdirs = logdirs_of(logdir)
    if logdirs != [logdir]:
        seeds = f"; name one of {', '.join(str(each) for each in logdirs)}" if logdirs else ""
        raise BadConfig(f"closed-loop: found {logdir}, expected a logdir of lead train{seeds}")
    store = store_in(logdir)
    found = instances(store, NAMESPACE, UID)
    chosen = [keys for keys in found if not stage or keys.stage == stage]
    if not chosen:
        raise BadConfig(f"--stage: found {stage!r}, expected one of {', '.join(sorted(keys.stage for keys in found))}")
    ends = [
        _Newest(keys, manifest)
        for keys in chosen
        for manifest in instance_manifests(store, keys)
        if manifest.step_in_epoch == 0
    ]
    if not ends:
        raise BadData(f"{logdir} holds no checkpoint of an epoch's end yet")
    return max(ends, key=lambda each: each.manifest.saved_at)


def _has_regressed(folder: Path, metric: str, max_drop: float | None) -> bool:
    """Returns whether an evaluation is worse than the best one before it by more than `max_drop`; prints it."""
    if max_drop is None:
        return False
    numbers = numbers_of(folder)
    if metric not in numbers:
        raise BadConfig(f"--metric: found {metric!r}, expected one of {', '.join(sorted(numbers))}")
    before = [
        numbers_of(each).get(metric) for each in folder.parent.iterdir() if each.name < folder.name and is_done(each)
    ]
    best = max((value for value in before if value is not None), default=None)
    if best is None:
        print(f"{metric} {numbers[metric]:.4g}; there is no earlier evaluation to compare with")
        return False
    drop = best - numbers[metric]
    verdict = "REGRESSION" if drop > max_drop else "ok"
    print(f"{verdict}: {metric} {numbers[metric]:.4g}, best before {best:.4g} (allowed drop: {max_drop:g})")
    return drop > max_drop


def show(name: str, evaluation: Evaluation) -> None:
    """Prints the numbers as a table, and by name what has no result."""
    console = Console(width=None if sys.stdout.isatty() else LOG_COLUMNS)
    table = Table(title=f"closed loop: {name}", title_justify="left")
    table.add_column("number")
    table.add_column("value", justify="right")
    for key, value in all_numbers(evaluation).items():
        table.add_row(key, f"{value:.6g}")
    for kind, rate in evaluation.summary.infractions_per_km.items():
        table.add_row(f"{kind} per km", f"{rate:.4g}")
    console.print(table)
    print(
        "success: whole route, no collision, no red light; success_bench2drive: finished, no infraction but min. speed"
    )
    for text, names in (("no record", evaluation.summary.without_record), ("crashed", evaluation.summary.crashed)):
        if names:
            print(f"{text} ({len(names)}): {', '.join(names)}")
