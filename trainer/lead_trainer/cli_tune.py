"""`lead lr-find` and `lead compare-perf`: what a person looks at before a long run, and after a change of the code."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from lead_protocol.exit_codes import ExitCode
from lead_protocol.store.folder import FolderStore
from lead_trainer.engine.attempt_run import Attempt, Place, resolve_config
from lead_trainer.engine.ddp import Group
from lead_trainer.engine.instances import instances
from lead_trainer.engine.lr_finder import picture
from lead_trainer.engine.perf import PerfRecord
from lead_trainer.engine.stop import StopFlag
from lead_trainer.engine.worker import device_of
from lead_trainer.errors import BadConfig
from lead_trainer.local_job import cache_store, local_job, session_cache_folder
from lead_trainer.local_run import local_run
from lead_trainer.local_store import NAMESPACE, PRIVATE_FOLDER, UID
from lead_trainer.report.console import open_log
from lead_trainer.world import World

CURVE_FILE = "lr_curve.csv"
NO_FALL = (
    "no suggestion: the loss does not fall by more than its noise; try a higher --max-lr, more --steps or a larger "
    "batch_size, or look at the data"
)


def find_learning_rate(
    words: Sequence[str],
    config_files: Sequence[Path],
    environ: Mapping[str, str],
    least: float,
    most: float,
    steps: int,
) -> None:
    """Sweeps the learning rate of the run that the words describe; prints the curve and writes it to its logdir."""
    if not 0 < least < most or steps < 3:
        raise BadConfig(
            f"lr-find: expected 0 < --min-lr < --max-lr and --steps of at least 3, found {least}, {most}, {steps}"
        )
    run = local_run(words, config_files, environ)
    open_log()
    store, caches = FolderStore(run.logdir / PRIVATE_FOLDER), cache_store(run, environ)
    job = local_job(run, store, caches, processes=1)
    place = Place(
        store, run.scratch_folder, session_cache_folder(run, environ),
        initial_weights=Path(run.keys.load_file) if run.keys.load_file else None, dataset_store=caches,
    )  # fmt: skip
    config, world = resolve_config(run.recipe, job), World()
    shape = run.recipe.shape(config)
    attempt = Attempt(job, place, Group(world, device_of(world)), StopFlag(), run.recipe, config, shape, None)
    curve = attempt.lr_curve(least, most, steps)
    (run.logdir / CURVE_FILE).write_text(curve.csv())
    best = curve.suggestion()
    print(picture(curve))
    print(f"curve: {run.logdir / CURVE_FILE}")
    print(NO_FALL if best is None else f"suggestion: lr={best:.3g}")


def compare_perf(before: Path, after: Path, max_drop: float) -> int:
    """Prints two speed records side by side; returns 1 when the second lost more than `max_drop` of the samples/s."""
    old, new = perf_record(before), perf_record(after)
    for name in ("device", "ranks", "precision", "batch_size"):
        if getattr(old, name) != getattr(new, name):
            print(f"note: {name} differs, {getattr(old, name)} and {getattr(new, name)}")
    for name in ("samples_per_s", "step_s", "step_p90_s", "waiting_share", "gpu_memory_bytes", "gpu_utilisation"):
        values = [getattr(record, name) for record in (old, new)]
        if None not in values:
            print(f"{name:<18} {values[0]:>14.5g} {values[1]:>14.5g}")
    drop = 1.0 - new.samples_per_s / old.samples_per_s
    verdict = "too slow" if drop > max_drop else "ok"
    print(f"{verdict}: B trains {abs(drop):.1%} {'slower' if drop > 0 else 'faster'} than A (allowed: {max_drop:.0%})")
    return 1 if drop > max_drop else ExitCode.DONE


def perf_record(path: Path) -> PerfRecord:
    """Returns the record in a file, or the last one written in a logdir; raises BadConfig where there is none."""
    if path.is_dir():
        store, objects = FolderStore(path / PRIVATE_FOLDER), path / PRIVATE_FOLDER
        keys = [info.key for one in instances(store, NAMESPACE, UID) for info in store.list(one.perf_prefix)]
        if not keys:
            raise BadConfig(f"{path} holds no speed record; a run writes one once it has trained a few steps")
        path = max((objects / key for key in keys), key=lambda record: record.stat().st_mtime_ns)
    try:
        return PerfRecord.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise BadConfig(f"{path} is no speed record of a run: {str(error).splitlines()[0]}") from error
