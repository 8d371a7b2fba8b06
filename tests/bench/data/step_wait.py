"""How long the training loop waits for data: with a warm session cache, while it fills, and without any.

    python -m bench.data.step_wait [--root FOLDER] [--batch 2] [--steps 4] [--minutes 4] [preset=small key=value …]

Builds the cache of a LEAD tree (default: the golden one in the shared folder) in MinIO, then trains with the trainer's
own loader: forward, backward, update. Goals: waits < 2 % of the time of a warm epoch; an epoch that fills the cache at
least 0.97 times as fast as one that streams from the store. The states take turns; medians over the rounds that fit
into the minutes.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import ObjectStore
from lead_protocol.store.s3 import S3Store
from lead_testing import shared_dir
from lead_testing.minio_server import MinioServer, minio_program
from lead_trainer.contract.samples import Batch
from lead_trainer.contract.step import StepContext
from lead_trainer.data.loader import Loader, on_device_of
from lead_trainer.engine.samples.dataset import open_dataset
from lead_trainer.engine.step.precision import autocast, chosen_dtype
from lead_trainer.local.job import local_job
from lead_trainer.local.run import LocalRun, local_run

BUCKET = "bench"
GOLDEN = "golden/lead_data/carla_leaderboard2"
STATES = ("without", "filling", "warm")


@dataclass(frozen=True)
class Epoch:
    """What one epoch, or its first steps, took."""

    state: str
    seconds: float
    wait_s: float
    step_s: float
    load_s: float  # of the loader's threads, added up
    longest_wait_s: float

    @property
    def waiting(self) -> float:
        """Share of the loop's time that it waits."""
        return self.wait_s / (self.wait_s + self.step_s)


def main() -> None:
    """Measures and prints."""
    options = _options()
    root = options.root or str(shared_dir() / GOLDEN)
    with tempfile.TemporaryDirectory(prefix="lead-step-wait-") as name:
        folder = Path(name)
        words = [*options.words, f"carla_root={root}", f"logdir={folder / 'run'}", f"batch_size={options.batch}"]
        run = local_run(words, [], {})
        with MinioServer(minio_program(), folder / "minio") as server:
            server.admin().make_bucket(BUCKET)
            store = S3Store(server.target(BUCKET))
            epochs = measured(run, store, folder, options.steps, 60 * options.minutes)
    print_table(epochs, options)


def measured(run: LocalRun, store: ObjectStore, folder: Path, steps: int, seconds: float) -> list[Epoch]:
    """Trains once in each state, and again while another round fits; a warm epoch follows the one that filled."""
    job = local_job(run, FolderStore(folder / "run" / "objects"), store, processes=1)
    train = trained(run)
    epochs: list[Epoch] = []
    begin = time.monotonic()
    for number in count():
        session = folder / f"session{number}"
        states = ("filling", "warm", "without") if number % 2 else STATES
        for state in states if number else ("unmeasured", *states):  # the first makes the model's memory
            dataset = open_dataset(
                job, run.recipe, run.config, store, session if state in ("filling", "warm") else None
            )
            try:
                epoch = one_epoch(run, dataset.samples, train, state, 1 if state == "unmeasured" else steps)
            finally:
                dataset.close()
            print(f"{state:10} {epoch.seconds:7.2f} s, waiting {100 * epoch.waiting:.2f} %", flush=True)
            epochs += [epoch] if state in STATES else []
        if (time.monotonic() - begin) * (number + 2) / (number + 1) > seconds:
            break
    return epochs


def one_epoch(run: LocalRun, samples: Any, train: Callable[[Batch], None], state: str, steps: int) -> Epoch:
    """Trains the first `steps` batches of epoch 0; the pipeline starts empty, as after every start of a pod."""
    config = run.config
    loader = Loader(
        samples, run.recipe.collate, batch_size=config.batch_size, seed=config.seed, threads=config.loader_threads,
        batches_ahead=config.prefetch_factor, device=_device(), on_device=on_device_of(run.recipe, config),
    )  # fmt: skip
    begin = time.perf_counter()
    for batch in islice(loader.batches(0), steps):
        train(batch)
    took_s = time.perf_counter() - begin
    stats = loader.stats()
    return Epoch(state, took_s, stats.wait_s, took_s - stats.wait_s, stats.load_s, stats.longest_wait_s)


def trained(run: LocalRun) -> Callable[[Batch], None]:
    """Returns a function that trains one batch and waits for the device."""
    device, config = _device(), run.config
    context = StepContext(config=config, device=device)
    model = run.recipe.model(config, {}).to(device).train()
    optimizer = run.recipe.optimizer(model, config)
    assert isinstance(optimizer, torch.optim.Optimizer)

    def train(batch: Batch) -> None:
        with autocast(chosen_dtype(config.number_format, device), device):
            loss = run.recipe.step(model, batch, context).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        loss.item()

    return train


def print_table(epochs: list[Epoch], options: argparse.Namespace) -> None:
    """Prints medians and the two goals."""
    rounds = len(epochs) // len(STATES)
    table = Table("session cache", "s", "least … most", "waiting", "longest wait s", "threads' load s",
                  title=f"{options.steps} steps of batch {options.batch}, {rounds} rounds, {_device().type}",
                  title_justify="left")  # fmt: skip
    middle: dict[str, float] = {}
    for state in STATES:
        mine = [epoch for epoch in epochs if epoch.state == state]
        times = [epoch.seconds for epoch in mine]
        middle[state] = statistics.median(times)
        table.add_row(
            state, f"{middle[state]:.2f}", f"{min(times):.2f} … {max(times):.2f}",
            f"{100 * statistics.median(e.waiting for e in mine):.2f} %",
            f"{statistics.median(e.longest_wait_s for e in mine):.3f}",
            f"{statistics.median(e.load_s for e in mine):.2f}",
        )  # fmt: skip
    console = Console(width=120)
    console.print(table)
    console.print(f"speed while filling ÷ without a cache: {middle['without'] / middle['filling']:.3f} (goal 0.97)")


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", default=["preset=small"], help="of the config, as for `lead train`")
    parser.add_argument("--root", default="", help="a LEAD tree")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4, help="of an epoch")
    parser.add_argument("--minutes", type=float, default=4.0, help="for all rounds; there is at least one")
    return parser.parse_args()


if __name__ == "__main__":
    main()
