"""`lead lr-find`: find a learning rate before a long run."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from lead_protocol.store.folder import FolderStore
from lead_trainer.engine.attempt.given import Attempt
from lead_trainer.engine.attempt.location import RunLocation
from lead_trainer.engine.attempt.lr_finder import picture
from lead_trainer.engine.attempt.stage_config import resolve_config
from lead_trainer.engine.attempt.trials import lr_curve
from lead_trainer.engine.group.ddp import Group
from lead_trainer.engine.group.stop import StopFlag
from lead_trainer.engine.worker import device_of
from lead_trainer.errors import BadConfig
from lead_trainer.local.job import cache_store, local_job, session_cache_folder
from lead_trainer.local.logdir import gone_if_refused
from lead_trainer.local.run import local_run
from lead_trainer.local.store import PRIVATE_FOLDER
from lead_trainer.report.console import open_log
from lead_trainer.world import World

CURVE_FILE = "lr_curve.csv"
NO_FALL = (
    "no suggestion: the loss does not fall by more than its noise; try a higher --max-lr, more --steps or a larger "
    "batch_size, or inspect the data"
)


def find_learning_rate(
    arguments: Sequence[str],
    config: Sequence[Path],
    environ: Mapping[str, str],
    min_lr: float,
    max_lr: float,
    steps: int,
) -> None:
    """Sweeps the learning rate of the run that the arguments describe; prints the curve and writes it to its logdir."""
    if not 0 < min_lr < max_lr or steps < 3:
        raise BadConfig(
            f"lr-find: expected 0 < --min-lr < --max-lr and --steps of at least 3, found {min_lr}, {max_lr}, {steps}"
        )
    run = local_run(arguments, config, environ)
    open_log()
    store, caches = FolderStore(run.logdir / PRIVATE_FOLDER), cache_store(run, environ)
    with gone_if_refused(run.logdir):
        job = local_job(run, store, caches, processes=1)
    location = RunLocation(
        store, run.scratch_folder, session_cache_folder(run, environ),
        initial_weights=Path(run.keys.load_file) if run.keys.load_file else None, dataset_store=caches,
    )  # fmt: skip
    world = World()
    attempt = Attempt(
        job=job,
        location=location,
        group=Group(world, device_of(world)),
        stop=StopFlag(),
        recipe=run.recipe,
        config=resolve_config(run.recipe, job),
    )
    curve = lr_curve(attempt, min_lr, max_lr, steps)
    (run.logdir / CURVE_FILE).write_text(curve.csv())
    best = curve.suggestion()
    print(picture(curve))
    print(f"curve: {run.logdir / CURVE_FILE}")
    print(NO_FALL if best is None else f"suggestion: lr={best:.3g}")
