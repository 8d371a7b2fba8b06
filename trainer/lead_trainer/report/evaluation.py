"""The report of an evaluation, for programs and for people, with its pictures: `report.json`, `report.md`.

Written beside the weights. What a recipe's own benchmark found may give `summary()`, JSON values, and `markdown()`.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from lead_protocol.manifests import CheckpointManifest
from lead_trainer.contract.reports import VALIDATION, Picture
from lead_trainer.report.picture_files import PictureFiles

REPORT, PICTURES = "report", "report_pictures"


@dataclass(frozen=True)
class Trained:
    """The checkpoint that weights are of, by its manifest."""

    stage: str
    seed: int
    epoch: int
    step: int
    git_revision: str
    world_size: int
    torch_version: str
    datasets: Sequence[str]  # digests of the caches it was trained on
    validated: str  # the file of the weights that its validation used: averaged ones if there are any
    logged: Mapping[str, float]  # what its validation found

    @classmethod
    def of(cls, manifest: CheckpointManifest) -> "Trained":
        """Returns what a checkpoint's manifest holds."""
        return cls(
            stage=manifest.stage,
            seed=manifest.seed,
            epoch=manifest.epoch,
            step=manifest.step,
            git_revision=manifest.git_revision,
            world_size=manifest.world_size,
            torch_version=manifest.torch_version,
            datasets=manifest.dataset_digests,
            validated=manifest.parts.get("ema", manifest.parts.get("model", "")),
            logged=without_prefix(
                {name: value for name, value in manifest.metrics.items() if name.startswith(VALIDATION)}
            ),
        )


@dataclass(frozen=True)
class EvaluationReport:
    """What was measured, on what, of which weights."""

    weights: str
    sha256: str
    recipe: str
    split: str
    changed: Sequence[str]  # arguments of the command line that changed the config
    datasets: Sequence[str]  # digests of the caches it was measured on, empty where the recipe measured by itself
    metrics: Mapping[str, float]  # of the recipe's validation, by name
    trained: Trained | None  # None for weights without their run
    config: Mapping[str, Any]
    world_size: int = 1  # processes that measured

    def differing(self) -> list[str]:
        """Returns the metrics that the run logged and that are not found again to the bit."""
        logged = self.trained.logged if self.trained is not None else {}
        return sorted(name for name, value in logged.items() if self.metrics.get(name) != value)

    def verdict(self) -> str:
        """Returns in a sentence whether what the run logged was found again."""
        if self.trained is None or not self.metrics or not self.trained.logged:
            return "nothing logged lies beside these weights"
        differing = self.differing()
        if not differing:
            return f"all {len(self.trained.logged)} logged numbers are found again, bit for bit"
        reasons = self._reasons()
        because = f"; {', '.join(reasons)}" if reasons else ""
        return f"{len(differing)} of {len(self.trained.logged)} logged numbers differ: {', '.join(differing)}{because}"

    def _reasons(self) -> list[str]:
        import torch

        assert self.trained is not None
        found = {
            f"the run validated {self.trained.validated}": self.trained.validated != self.weights,
            "the data are others": list(self.datasets) != list(self.trained.datasets),
            f"{' '.join(self.changed)} was given": bool(self.changed),
            f"the run had {self.trained.world_size} processes": self.trained.world_size != self.world_size,
            f"the run had torch {self.trained.torch_version}": self.trained.torch_version != torch.__version__,
        }
        return [reason for reason, holds in found.items() if holds]

    def table(self) -> Table:
        """Returns the metrics for a terminal, beside what was logged."""
        logged = self.trained.logged if self.trained is not None else {}
        table = Table("metric", "value", "logged", title=f"{self.split}: {self.weights}", title_justify="left")
        for name, value in sorted(self.metrics.items()):
            table.add_row(name, f"{value:.6g}", _beside(value, logged.get(name)))
        return table

    def markdown(self) -> str:
        """Returns the report as a page."""
        logged = self.trained.logged if self.trained is not None else {}
        lines = [
            f"# Report of `{self.weights}`",
            "",
            f"Recipe `{self.recipe}`, split `{self.split}`; {self.verdict()}.",
        ]
        if self.trained is not None:
            of = self.trained
            lines += ["", f"Stage `{of.stage}`, seed {of.seed}, epoch {of.epoch}, step {of.step}, code "
                      f"`{of.git_revision or 'unknown'}`, data {_digests(of.datasets)}."]  # fmt: skip
        if self.metrics:
            lines += ["", "| metric | value | logged |", "|---|---|---|"]
            lines += [f"| {name} | {value:.6g} | {_beside(value, logged.get(name))} |"
                      for name, value in sorted(self.metrics.items())]  # fmt: skip
        return "\n".join(lines) + "\n"


def without_prefix(metrics: Mapping[str, float]) -> dict[str, float]:
    """Returns metrics of a validation by the names that a report has."""
    return {name.removeprefix(VALIDATION): value for name, value in metrics.items()}


def write_report(report: EvaluationReport, own: Any, pictures: Mapping[str, Picture], folder: Path) -> list[Path]:
    """Writes report and pictures into a folder, with what the recipe's benchmark found; returns the report's files."""
    summary = dict(own.summary()) if hasattr(own, "summary") else {}
    page = report.markdown() + (f"\n{own.markdown()}" if hasattr(own, "markdown") else "")
    page += "\n".join(["", "Hyper-parameters:", "", "```json", json.dumps(report.config, indent=1), "```", ""])
    document = {**asdict(report), "differing": report.differing(), **summary}
    paths = [folder / f"{REPORT}.json", folder / f"{REPORT}.md"]
    paths[0].write_text(json.dumps(_plain(document), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    paths[1].write_text(page, encoding="utf-8")
    files = PictureFiles(folder / PICTURES)
    for tag, picture in pictures.items():
        files.write(tag, picture, 0)
    return paths


def _beside(value: float, logged: float | None) -> str:
    return "" if logged is None else "equal" if logged == value else f"{logged:.17g}"


def _digests(datasets: Sequence[str]) -> str:
    return ", ".join(f"`{digest[:12]}`" for digest in datasets) or "none"


def _plain(value: Any) -> Any:
    """Returns JSON values; a number that is none becomes null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
