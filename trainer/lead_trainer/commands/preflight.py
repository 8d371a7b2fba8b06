"""`lead preflight`: whether this machine can train a run, before it begins: device, model, data, disks and loggers.

Takes the arguments of `lead train`. Builds no cache, writes nothing, and asks no network but the store's.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lead_protocol.store.object_store import StoreError
from lead_trainer.commands.inspect_data import LOG_COLUMNS
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.local.preflight.dataset import DATA, check_datasets
from lead_trainer.local.preflight.device import device_finding, devices_here
from lead_trainer.local.preflight.disks import Need, checkpoint_bytes, disk_findings
from lead_trainer.local.preflight.finding import Finding
from lead_trainer.local.preflight.loggers import logger_findings
from lead_trainer.local.preflight.model import check_model_of
from lead_trainer.local.run import LocalRun, local_run
from lead_trainer.report.console import open_log
from lead_trainer.report.wandb import wandb_mode
from lead_trainer.terminal_text import printable


def preflight(arguments: Sequence[str], config: Sequence[Path], environ: Mapping[str, str]) -> int:
    """Prints one line a check; returns 1 where one has failed. Raises BadConfig for arguments that are no config."""
    open_log()
    run = local_run(arguments, config, environ)
    findings = [device_finding(devices_here()), *run_findings(run, environ)]
    console = Console(width=None if sys.stdout.isatty() else LOG_COLUMNS)
    title = f"recipe {run.recipe.name}, logdir {run.logdir}"
    table = Table("check", "result", "found", title=title, title_justify="left")
    for finding in findings:
        table.add_row(finding.check, finding.result, Text(printable(finding.text)))
    console.print(table)
    failed = sum(finding.result == "failed" for finding in findings)
    console.print(f"{failed} of {len(findings)} checks failed" if failed else "ready to train")
    return int(failed > 0)


def run_findings(run: LocalRun, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yields what is found of the run's model, data, disks and loggers."""
    model = check_model_of(run)
    yield model.finding
    kept = run.keys.keep_last + run.keys.keep_best
    if run.keys.keep_every_epochs:
        kept += run.config.epochs // run.keys.keep_every_epochs
    size = checkpoint_bytes(model.parameters, kept)
    needs = [Need(f"{kept + 1} checkpoints", run.logdir, size, model.unknown)]
    try:
        for dataset in check_datasets(run, environ):
            yield dataset.finding
            needs += dataset.needs
    except (BadConfig, BadData, StoreError) as error:
        yield Finding(DATA, "failed", str(error))
    yield from disk_findings(needs)
    mode = wandb_mode(run.keys.wandb_mode, run.recipe.reports.wandb(run.config), environ)
    yield from logger_findings(tensorboard=run.keys.tensorboard, mode=mode, environ=environ)
