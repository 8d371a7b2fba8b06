"""`lead evaluate` of a world model: pictures per step ahead beside three baselines, as tables and for the report.

The model predicts in open loop from `logging.rollout_context` true frames; the baselines know no more: copy-last shows
the last true frame for every step.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from lead_trainer.contract.benchmark import Evaluated
from lead_trainer.contract.samples import Batch, Samples, stacked
from lead_trainer.contract.step import Facts
from lead_trainer.data.device_batch import to_device
from lead_trainer.data.ordered_pool import ordered_map
from lead_trainer.errors import BadData
from lead_trainer.recipes.world.config import WorldConfig
from lead_trainer.recipes.world.dataset import WindowSamples
from lead_trainer.recipes.world.mean_picture import mean_picture_facts
from lead_trainer.recipes.world.metrics import baselines, picture_totals, psnr, ssim
from lead_trainer.recipes.world.model import WorldModel, parameter_counts
from lead_trainer.recipes.world.pictures import rollout_clip, validation_samples
from lead_trainer.recipes.world.pixels import signed, unit
from lead_trainer.report.evaluation import PICTURES
from lead_trainer.report.picture_files import PictureFiles

MODEL = "model"
LOG_COLUMNS = 160  # without a terminal

Sums = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Report:
    """What was measured; PSNR in dB."""

    weights: str
    split: str
    windows: int
    parameters: Mapping[str, int]
    means: Mapping[str, float]  # reconstruction and one step ahead, by tag as in training
    psnr_by_step: Mapping[str, list[float]]  # open loop: of the model and each baseline, step 1 first
    ssim_by_step: list[float]  # of the model

    def summary(self) -> dict[str, Any]:
        """Returns what is in the report beside the logged numbers."""
        return asdict(self)

    def markdown(self) -> str:
        """Returns the part of the report's page that shows this."""
        names = list(self.psnr_by_step)
        lines = [
            "## Open-loop prediction", "",
            f"{self.windows} windows of the split `{self.split}`; "
            + ", ".join(f"{part} {count:,}" for part, count in self.parameters.items()) + " parameters.", "",
            "| measure | value |", "|---|---|",
            *(f"| {tag} | {value:.4g} |" for tag, value in self.means.items()), "",
            "PSNR (dB) of an open-loop prediction, by steps ahead:", "",
            f"| step | {' | '.join(name.replace('_', ' ') for name in names)} | SSIM of the model |",
            "|---|" + "---|" * (len(names) + 1),
        ]  # fmt: skip
        for step, similar in enumerate(self.ssim_by_step):
            values = " | ".join(f"{self.psnr_by_step[name][step]:.2f}" for name in names)
            lines.append(f"| {step + 1} | {values} | {similar:.3f} |")
        return "\n".join(lines) + "\n"


def measured(run: Evaluated[WorldConfig]) -> Report:
    """Measures weights on a split, prints the tables, and writes pictures beside the weights."""
    model, config = run.model, run.config
    assert isinstance(model, WorldModel)
    (cache,) = run.caches((run.split, "train")).values()
    windows = WindowSamples(config, cache, run.split, training=False)
    if not len(windows):
        raise BadData(f"--split {run.split}: it holds no window of {config.data.sequence_length} frames")
    facts = mean_picture_facts(WindowSamples(config, cache, "train", training=False))
    report = report_of(model, config, windows, facts, run)
    console = Console(width=None if sys.stdout.isatty() else LOG_COLUMNS)
    for table in tables(report):
        console.print(table)
    return report


@torch.no_grad()
def report_of(
    model: WorldModel, config: WorldConfig, windows: Samples, facts: Facts, run: Evaluated[WorldConfig]
) -> Report:
    """Returns what a model shows of the windows; writes the pictures of the first batch."""
    means: Sums = {}
    by_step: Sums = {}
    similar, first = torch.zeros(0), config.logging.rollout_context
    batches = _batches(windows, config, next(model.parameters()).device)
    for number, batch in enumerate(run.counted(batches, -(-len(windows) // config.batch_size))):
        images, actions = batch["images"], batch["actions"]
        outputs = model(images, actions)
        for tag, (total, count) in picture_totals(outputs, images, facts).items():
            _add(means, tag, torch.stack([total, torch.as_tensor(float(count), device=total.device)]))
        rollout, after = unit(model.rollout(images[:, :first], actions).pictures), unit(images[:, 1:])
        last = unit(images[:, first - 1 : first]).expand_as(after).contiguous()
        each = {MODEL: psnr(rollout, after), **baselines(last, after, facts)}
        for name, values in each.items():
            _add(by_step, name, values.double().sum(0))
        similar = ssim(rollout, after).double().sum(0).cpu() + (similar if number else 0.0)
        if not number:
            files = PictureFiles(run.weights.parent / PICTURES)
            files.picture("samples", validation_samples(outputs, images, config.logging.num_samples), 0)
            files.clip("rollout", rollout_clip(images[0, 1:], rollout[0] * 2 - 1), 0)
    count = len(windows)
    return Report(
        weights=run.weights.name,
        split=run.split,
        windows=count,
        parameters=parameter_counts(model),
        means={tag: float(pair[0] / pair[1]) for tag, pair in means.items()},
        psnr_by_step={name: (values / count).tolist() for name, values in by_step.items()},
        ssim_by_step=(similar / count).tolist(),
    )


def tables(report: Report) -> list[Table]:
    """Returns the report's numbers for a terminal."""
    means = Table("measure", "value", title=f"{report.split}: {report.weights}", title_justify="left")
    for tag, value in report.means.items():
        means.add_row(tag, f"{value:.4g}")
    steps = Table("PSNR (dB) at step", *report.psnr_by_step, title="open loop", title_justify="left")
    for step in range(len(report.ssim_by_step)):
        steps.add_row(str(step + 1), *(f"{values[step]:.2f}" for values in report.psnr_by_step.values()))
    return [means, steps]


def _batches(windows: Samples, config: WorldConfig, device: torch.device) -> Iterator[Batch]:
    numbers = [int(number) for number in windows.epoch_draw(0)]
    loaded = ordered_map(lambda number: windows.load(number, 0), numbers, config.loader_threads)
    waiting: list[Any] = []
    for left, sample in enumerate(loaded, 1 - len(numbers)):
        waiting.append(sample)
        if len(waiting) == config.batch_size or not left:
            batch = to_device(stacked(waiting), device)
            yield {**batch, "images": signed(batch["images"])}
            waiting = []


def _add(sums: Sums, tag: str, value: torch.Tensor) -> None:
    sums[tag] = sums[tag] + value if tag in sums else value
