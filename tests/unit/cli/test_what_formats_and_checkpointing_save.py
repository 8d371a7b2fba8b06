"""`lead bench model` of any recipe: each variant of a step is measured, and what is kept for the backward pass."""

import os
import re
from pathlib import Path

import pytest
import torch

from lead_testing.toy_runs import toy_recipe_installed
from lead_trainer.bench.model_step import StepTrial, activation_bytes, peak_bytes
from lead_trainer.cli import main
from lead_trainer.engine.step.optimizers import Optimizers


def rows_of(shown: str) -> list[list[str]]:
    return [re.split(r" *│ *", line.strip("│ \n")) for line in shown.splitlines() if line.startswith("│")]


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_each_variant_of_a_recipe_without_data_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    with toy_recipe_installed(tmp_path):
        assert main(["bench", "model", "recipe=toy", "--seconds", "0.01"]) == 0
    rows = rows_of(capsys.readouterr().out)
    formats = ["fp32", "half precision (bf16)"]
    assert [row[0] for row in rows if row[1]] == [*formats, *(f"{name}, gradient checkpointing" for name in formats)]
    assert all(float(row[1]) > 0 and float(row[2]) > 0 and row[6] == "not measured" for row in rows if row[1])
    assert rows[0][3] == "+0%" == rows[0][5]


def test_what_a_backward_pass_needs_is_counted_once_and_without_weights() -> None:
    layer = torch.nn.Linear(8, 8, bias=False)
    given = torch.zeros(4, 8)

    def forward(name: str) -> torch.Tensor:
        hidden = layer(given)  # keeps `given`
        return (hidden * hidden).sum()  # keeps `hidden`, named twice

    trial = StepTrial(forward, Optimizers(torch.optim.SGD(layer.parameters(), 0.1)), layer, 4)
    assert activation_bytes(trial) == 2 * 4 * 8 * 4
    assert peak_bytes(trial, torch.device("cpu")) is None
    before = layer.weight.detach().clone()
    trial()
    assert torch.equal(before, layer.weight)  # zeros have no gradient


def test_nothing_that_a_forward_pass_keeps_outlives_the_measuring() -> None:
    layer, given = torch.nn.Linear(1, 1), torch.zeros(1 << 22, 1)  # 16 MiB
    optimizers = Optimizers(torch.optim.SGD(layer.parameters()))
    trial = StepTrial(lambda name: layer(given).sigmoid().sum(), optimizers, layer, 1)
    activation_bytes(trial)
    before = resident_bytes()
    for _ in range(20):
        assert activation_bytes(trial) == 2 * given.nbytes  # `given`, and the sigmoid's own result
    assert resident_bytes() - before < 5 * given.nbytes
