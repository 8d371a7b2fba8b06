"""`lead lr-find`: what a person looks at before a long run."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from lead_protocol.store.folder import FolderStore
from lead_trainer.engine.attempt_run import Attempt, Place
from lead_trainer.engine.ddp import Group
from lead_trainer.engine.lr_finder import picture
from lead_trainer.engine.stage_config import resolve_config
from lead_trainer.engine.stop import StopFlag
from lead_trainer.engine.worker import device_of
from lead_trainer.errors import BadConfig
from lead_trainer.local_job import cache_store, local_job, session_cache_folder
from lead_trainer.local_logdir import gone_if_refused
from lead_trainer.local_run import local_run
from lead_trainer.local_store import PRIVATE_FOLDER
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
    with gone_if_refused(run.logdir):
        job = local_job(run, store, caches, processes=1)
    place = Place(
        store, run.scratch_folder, session_cache_folder(run, environ),
        initial_weights=Path(run.keys.load_file) if run.keys.load_file else None, dataset_store=caches,
    )  # fmt: skip
    config, world = resolve_config(run.recipe, job), World()
    attempt = Attempt(
        job=job, place=place, group=Group(world, device_of(world)), stop=StopFlag(), recipe=run.recipe, config=config
    )
    curve = attempt.lr_curve(least, most, steps)
    (run.logdir / CURVE_FILE).write_text(curve.csv())
    best = curve.suggestion()
    print(picture(curve))
    print(f"curve: {run.logdir / CURVE_FILE}")
    print(NO_FALL if best is None else f"suggestion: lr={best:.3g}")
