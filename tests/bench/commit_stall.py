"""What commits cost a training whose state has 1 GB: run time and stall, beside the steps and at once.

Run as `python tests/bench/commit_stall.py [--rounds 5] [--step device|cpu] [--store minio|folder]`. Each run is a
process of its own that trains the toy recipe with a model of 83 M parameters and AdamW, a checkpoint every 20 steps;
the order of the variants rotates from round to round. A window of the run is measured that begins before its second
commit and ends before another, so that it holds as many whole commits as it is long. `stall` is what the step before a
commit took longer than the median step: for so long the loop was halted. The first commit, which makes the memory for
the copy, has a column of its own.

--step device: a step of 1 s on a device, to which the host hands small operations for 0.15 s and for which it waits.
--step cpu: forward and backward pass and the update of all parameters, on every core.
--interpreter measures instead what a loop of small operations loses to the interpreter's lock and to the cores while a
copy of the state is hashed and written, by a thread of its process or by a process of its own.
"""

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import torch
from rich.console import Console
from rich.table import Table

from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import ObjectStore
from lead_protocol.store.s3 import S3Store
from lead_testing.minio_server import MinioServer, minio_program
from lead_testing.toy_jobs import a_toy_job, manifests
from lead_testing.toy_recipe import ToyConfig
from lead_testing.toy_runs import toy_recipe_with, train_here
from lead_trainer.contract.samples import Batch
from lead_trainer.contract.step import StepContext, StepOutput
from lead_trainer.engine.checkpoints.checkpoint import _write, parameters_sha256

WIDTH, LAYERS, EVERY = 2635, 12, 20  # 83.3 M parameters: 1.0 GB with two moments each
DEVICE_S, HOST_OPERATIONS = 1.0, {"device": 50_000, "cpu": 0}
VARIANTS = ("none", "beside", "at once")
COLUMNS = {
    "run, s": "run_s", "step, s": "step_s", "stall, s": "stall_s", "first stall, s": "first_stall_s", "CPU, s": "cpu_s",
    "peak, GB": "peak_gb", "state, GB": "state_gb",
}  # fmt: skip


class Wide(torch.nn.Module):
    """Layers that make the state large, and a small one that a `device` step trains alone: a GPU trains the others."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.small = torch.nn.Linear(6, 1)

    def forward(self, x_BF: torch.Tensor, rows: int) -> torch.Tensor:
        y_B: torch.Tensor = self.small(x_BF).squeeze(1)
        if rows:
            h = torch.full((rows, WIDTH), 0.1)
            for layer in self.wide:
                h = torch.relu(layer(h))
            y_B = y_B + 1e-6 * h.mean()
        return y_B


def optimizer(model: torch.nn.Module, config: ToyConfig) -> torch.optim.Optimizer:
    """Returns AdamW, which has moments of every parameter from the start."""
    made = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    made.step()
    made.zero_grad(set_to_none=True)
    return made


class Steps:
    """When each step began, by the clock."""

    begins: ClassVar[list[float]] = []


def step(kind: str, rows: int) -> Callable[[Any, Batch, StepContext[ToyConfig]], StepOutput]:
    """Returns a step of one kind; one on the CPU takes so many rows through the wide layers."""

    def train(model: Any, batch: Batch, context: StepContext[ToyConfig]) -> StepOutput:
        Steps.begins.append(begin := time.monotonic())
        small = torch.ones(8)
        for _ in range(HOST_OPERATIONS[kind]):
            small = small * 1.0
        if kind == "device":
            time.sleep(max(0.0, begin + DEVICE_S - time.monotonic()))
        return StepOutput(loss=torch.nn.functional.mse_loss(model(batch["x"], rows), batch["y"]))

    return train


def measure(variant: str, asked: argparse.Namespace, folder: Path, open_store: Callable[[], ObjectStore]) -> None:
    """Trains one run and writes its figures to `folder`."""
    steps = EVERY * (asked.commits + 2) + 1
    config = {"samples": 8 * steps, "async_checkpoints": variant != "at once", "grad_clip_norm": 0.0}
    job = a_toy_job(epochs=1, every_steps=0 if variant == "none" else EVERY, keep_last=2, config=config)
    with toy_recipe_with(model=lambda config, facts: Wide(), optimizer=optimizer, step=step(asked.step, asked.rows)):
        train_here(open_store(), folder, job)
    intervals = [after - begin for begin, after in zip(Steps.begins, Steps.begins[1:], strict=False)]
    usual = statistics.median(intervals)
    first, *stalls = [intervals[at - 1] - usual for at in range(EVERY, steps - EVERY, EVERY)]
    usage = resource.getrusage(resource.RUSAGE_SELF)
    found = {
        "run_s": Steps.begins[steps - 2] - Steps.begins[2 * EVERY - 1],  # from before a commit to before another
        "step_s": usual,
        "stall_s": statistics.median(stalls),
        "first_stall_s": first,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_gb": usage.ru_maxrss * 1024 / 1e9,
        "state_gb": sum(file.size for file in manifests(open_store())[-1].files.values()) / 1e9,
    }
    (folder / "figures.json").write_text(json.dumps(found))


def main() -> None:
    """Measures what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commits", type=int, default=1, help="in the measured window of 20 steps each")
    parser.add_argument("--step", choices=list(HOST_OPERATIONS), default="device")
    parser.add_argument("--rows", type=int, default=256, help="of a step on the CPU")
    parser.add_argument("--store", choices=["minio", "folder"], default="minio")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--interpreter", action="store_true")
    options = parser.parse_args()
    if options.interpreter:
        interpreter(options.rounds)
    else:
        compare(options)


def compare(options: argparse.Namespace) -> None:
    """Measures every variant in every round and prints their medians."""
    options.rows *= options.step == "cpu"
    found = {name: list[dict[str, float]]() for name in VARIANTS}
    load = list[float]()
    for number in range(options.rounds):
        turn = number % len(options.variants)
        for variant in [*options.variants[turn:], *options.variants[:turn]]:
            found[variant].append(one_run(variant, options))
            load.append(os.getloadavg()[0])
            print(number, variant, {key: round(value, 3) for key, value in found[variant][-1].items()}, flush=True)
    show(found, options, load)


def one_run(variant: str, asked: argparse.Namespace) -> dict[str, float]:
    """Returns the figures of one run in a process and a store of its own."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        open_store: Callable[[], ObjectStore] = lambda: FolderStore(folder / "store")  # noqa: E731
        if asked.store == "minio":
            server = stack.enter_context(MinioServer(minio_program(), folder / "minio"))
            server.admin().make_bucket("bench")
            open_store = lambda: S3Store(server.target("bench"))  # noqa: E731
        process = multiprocessing.get_context("fork").Process(target=measure, args=(variant, asked, folder, open_store))
        process.start()
        process.join()
        assert process.exitcode == 0, f"the run {variant!r} ended with {process.exitcode}"
        figures: dict[str, float] = json.loads((folder / "figures.json").read_text())
        return figures


def interpreter(rounds: int) -> None:
    """Prints how many seconds a busy loop loses to a commit's work on the CPU, by where that is done."""
    torch.set_num_threads(1)
    model = Wide()
    parts: dict[str, Any] = {"model": model.state_dict(), "optimizer": optimizer(model, ToyConfig()).state_dict()}
    lost: dict[str, list[float]] = {"thread": [], "process": []}
    with tempfile.TemporaryDirectory() as folder:

        def work() -> None:
            parameters_sha256(parts["model"])
            for name, part in parts.items():
                _write(Path(folder) / name, lambda sink, p=part: torch.save(p, sink))

        for _ in range(rounds):
            for where, done in lost.items():
                rate = operations(until=time.monotonic() + 2.0) / 2.0
                begin = time.monotonic()
                made = threading.Thread(target=work) if where == "thread" else multiprocessing.Process(target=work)
                made.start()
                count = operations(while_alive=made)
                done.append(time.monotonic() - begin - count / rate)
    for where, seconds in lost.items():
        print(f"{where}: {statistics.median(seconds):.2f} s lost of {sorted(round(one, 2) for one in seconds)}")


def operations(*, until: float = 0.0, while_alive: threading.Thread | multiprocessing.Process | None = None) -> int:
    """Returns how many small operations were done until then."""
    small, count = torch.ones(8), 0
    while while_alive.is_alive() if while_alive is not None else time.monotonic() < until:
        for _ in range(1000):
            small = small * 1.0
        count += 1000
    return count


def show(found: dict[str, list[dict[str, float]]], options: argparse.Namespace, load: list[float]) -> None:
    """Prints the medians, and the run time relative to that of the same round without commits."""
    title = f"{options.step} steps, {options.store}, {options.rounds} rounds, load {statistics.median(load):.1f}"
    table = Table(title=title)
    for column in ("commits", "÷ none", *COLUMNS):
        table.add_column(column)
    base = [one["run_s"] for one in found["none"]]
    for variant in options.variants:
        runs = found[variant]
        ratio = statistics.median(one["run_s"] / without for one, without in zip(runs, base, strict=True))
        middle = [f"{statistics.median(one[key] for one in runs):.2f}" for key in COLUMNS.values()]
        table.add_row(variant, f"{ratio:.3f}", *middle)
    Console(width=120).print(table)


if __name__ == "__main__":
    assert threading.active_count() == 1, "runs are forked"
    main()
