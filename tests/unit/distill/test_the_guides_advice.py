"""What the training guide says by hand is done or said by itself: scripts, memory, slow loading, a loss that grows."""

import json
import shutil
from pathlib import Path

import pytest
import structlog.testing
import torch

from lead_trainer.engine.attempt.memory import MemoryPlan, next_memory_plan
from lead_trainer.engine.reporting.watch import ENGINE_RULES, WAITING, advise
from lead_trainer.engine.step import compilation
from lead_trainer.local.config_sources import with_flags
from lead_trainer.local.run import local_run
from lead_trainer.recipes.distill.config_values import load_config
from lead_trainer.recipes.distill.recipe import RECIPE
from lead_trainer.recipes.distill.stage_commands import parser

COMMANDS = [
    "extract_frames.py --split train --resolution 224 --num-samples 2000",
    "extract_frames.py --split val --resolution 224 --num-samples 1000",
    "generate_teacher_labels.py --split train --batch-size 4",
    "generate_teacher_labels.py --split val --batch-size 4",
    "generate_ego_history.py --split all",
    "merge_shards.py --split train --num-shards 4",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_d_02_d_05_d_07_d_08_a_script_of_the_guide_is_a_stage_with_its_flags(command: str) -> None:
    script, *flags = command.split()
    options = vars(parser().parse_args([script.removesuffix(".py"), *flags]))
    said = dict(zip(flags[::2], flags[1::2], strict=True))
    assert {flag: str(options[flag.strip("-").replace("-", "_")]) for flag in said} == said


def test_d_29_a_machine_that_cannot_compile_trains_as_it_is_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_compiler(*_: object, **__: object) -> object:
        raise RuntimeError("no C++ compiler found")

    monkeypatch.setattr(torch, "compile", no_compiler)
    model = torch.nn.Linear(1, 1)
    with structlog.testing.capture_logs() as told:
        assert compilation.compiled(model, torch.device("cpu")) is model
    assert [line["log_level"] for line in told] == ["warning"] and "no C++ compiler found" in told[0]["error"]


def test_d_47_a_batch_of_32_that_does_not_fit_becomes_4_by_8_and_then_2_by_16() -> None:
    config = load_config({"model": "baseline", "batch_size": 32})
    assert config.split_when_out_of_memory
    memory_plan: MemoryPlan | None = MemoryPlan(config.saves_memory)
    steps = []
    while (memory_plan := next_memory_plan(memory_plan, 32, can_checkpoint=True)) is not None:
        steps.append((32 // memory_plan.parts, memory_plan.parts))
    assert steps == [(16, 2), (8, 4), (4, 8), (2, 16), (1, 32)]


@pytest.mark.parametrize(
    ("history", "rule", "words"),
    [
        ([{"loss": 1.0, WAITING: 0.4}], "slow-loading", ["40%", "num_workers=8", "extract frames before"]),
        ([{"loss": loss} for loss in (1.0, 2.0, 3.0, 4.0)], "divergence", ["lr=5e-05", "labels"]),
    ],
)
def test_d_47_d_48_the_advice_is_the_guides(history: list[dict[str, float]], rule: str, words: list[str]) -> None:
    rules = (*ENGINE_RULES, *RECIPE.reports.watch_rules(load_config({"model": "baseline"})))
    (said,) = advise(rules, history, len(history))
    assert said.rule == rule and all(word in said.message for word in words), said.message


def test_a_stage_takes_over_the_student_of_load_file_but_no_key_that_its_preset_sets(tmp_path: Path) -> None:
    words = ["recipe=distill", "--model", "reasoning", "--num-action-bins", "64", "--lr", "0.5", "--model-size", "110m"]
    earlier = local_run(with_flags(words), [], {}).config
    (tmp_path / "config.json").write_text(json.dumps(earlier.model_dump()))
    shutil.copy(tmp_path / "config.json", weights := tmp_path / "reasoning_seed42_best.pt")
    later = local_run(["recipe=distill", "preset=tiny", f"load_file={weights}"], [], {}).config
    assert (later.num_action_bins, later.model_size, later.lr) == (64, "tiny", 1e-3)
    plain = local_run(["recipe=distill", "model=reasoning", f"load_file={weights}"], [], {}).config
    assert (plain.num_action_bins, plain.model_size, plain.lr) == (64, "110m", 1e-4)
