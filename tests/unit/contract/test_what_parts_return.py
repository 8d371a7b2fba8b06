"""What a recipe's part returns is checked where it is taken: the error names the part, what was found and expected."""

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from lead_protocol.exit_codes import ExitCode
from lead_testing import toy_recipe
from lead_testing.toy_runs import toy_recipe_installed
from lead_trainer.cli import main
from lead_trainer.contract.files import Files
from lead_trainer.contract.step import StepOutput

LOOSE = torch.nn.Linear(2, 2)


@pytest.fixture(autouse=True)
def toy(tmp_path: Path) -> Iterator[None]:
    with toy_recipe_installed(tmp_path):
        yield


def names(**changed: Any) -> Files[Any]:
    return Files(names=lambda config, at: changed)


def without_gradient(model: Any, batch: Any, context: Any) -> StepOutput:
    return StepOutput(torch.zeros(()))


def ends_the_process(model: Any, batch: Any, context: Any) -> StepOutput:
    sys.exit(0)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"step": lambda model, batch, context: None}, "step returned NoneType None, expected StepOutput"),
    ({"step": without_gradient}, "step's loss is .* without a gradient, expected a scalar"),
    ({"step": ends_the_process}, r"ended the process by exit\(0\)"),
    ({"model": lambda config, facts: [1]}, r"model returned list \[1\], expected Module"),
    ({"optimizer": lambda model, config: 3}, "optimizer returned int 3, expected Optimizer or Mapping"),
    ({"optimizer": lambda model, config: torch.optim.SGD(LOOSE.parameters(), lr=1.0)}, "belong to no optimizer"),
    ({"samples": lambda config, caches: [1, 2]}, r"samples returned list \[1, 2\], expected Samples"),
    (
        {"files": names(model="../out.pth")},
        "files.names gives model the name '../out.pth', which is no plain file name",
    ),
    ({"files": names(model="a/b")}, "which is no plain file name"),
    ({"files": names(model=3)}, "which is a int, expected a text"),
    ({"files": names(modle="a.pth")}, "files.names has a part 'modle', expected some of .*; did you mean model"),
    ({"files": Files(shown=lambda *given: "abc")}, "files.shown: found the text 'abc', expected a list of file names"),
    ({"files": Files(shown=lambda *given: ["../out.pt"])}, "files.shown: found the name '../out.pt'"),
    ({"files": Files(shown=lambda *given: ["config.json"])}, "files.shown: found the name 'config.json'"),
]


@pytest.mark.parametrize(
    ("part", "message"), WRONG, ids=lambda given: next(iter(given)) if isinstance(given, dict) else ""
)
def test_a_wrong_result_is_one_sentence_with_the_part(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    part: dict[str, Any],
    message: str,
) -> None:
    monkeypatch.setattr(toy_recipe, "RECIPE", replace(toy_recipe.RECIPE, **part))
    assert main(["train", "recipe=toy", f"logdir={tmp_path / 'run'}", "epochs=1"]) != ExitCode.DONE
    shown = capsys.readouterr()
    assert re.search(message, shown.err + shown.out)
    assert not list(tmp_path.rglob("out.p*"))


def test_tags_that_two_values_would_share_are_refused() -> None:
    loss = torch.zeros((), requires_grad=True)
    with pytest.raises(TypeError, match="the tag 'loss' is given twice"):
        StepOutput(loss, metrics={"loss": loss})
    with pytest.raises(TypeError, match="the tag 'a' is given twice"):
        StepOutput(loss, parts={"a": loss}, metrics={"a": loss})


def test_a_best_metric_that_no_epoch_gives_is_refused_with_its_near_match(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "recipe=toy", f"logdir={tmp_path / 'run'}", "epochs=2", "best_metric=metric/eror"]
    assert main(words) == ExitCode.BAD_CONFIG
    assert re.search("best_metric: found 'metric/eror', but an epoch of this run gives .*loss", capsys.readouterr().err)


def test_a_key_that_stands_twice_in_a_config_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "twice.yaml").write_text("epochs: 1\nlr: 0.1\nepochs: 2\n")
    words = ["train", "recipe=toy", f"logdir={tmp_path / 'run'}", "--config", str(tmp_path / "twice.yaml")]
    assert main(words) == ExitCode.BAD_CONFIG
    assert "the key 'epochs' stands twice" in capsys.readouterr().err


def test_example_data_need_a_target(capsys: pytest.CaptureFixture[str]) -> None:
    for target in ("", "store:"):
        assert main(["example-data", target]) == ExitCode.BAD_CONFIG
        assert "found an empty target" in capsys.readouterr().err
