"""What a recipe's part returns is checked where it is taken: the error names the part, what was found and expected."""

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchmetrics import Metric

from lead_protocol.exit_codes import ExitCode
from lead_testing import toy_recipe
from lead_testing.toy_runs import toy_recipe_installed
from lead_trainer.cli import main
from lead_trainer.contract.checked_parts import BadPart
from lead_trainer.contract.files import Files
from lead_trainer.contract.reports import Reports, WatchRule
from lead_trainer.contract.results import Named
from lead_trainer.contract.samples import Samples, stacked
from lead_trainer.contract.step import StepOutput
from lead_trainer.contract.trees import Trees
from lead_trainer.contract.validation import Evaluation, Validation
from lead_trainer.engine.reporting.watch import advise
from lead_trainer.engine.samples.checked_samples import CheckedSamples
from lead_trainer.errors import BadData

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


def measured(metrics: Any) -> Validation[Any]:
    return Validation(samples=toy_recipe.validation_samples, evaluate=toy_recipe.evaluate, metrics=metrics)


class Stateless(Metric):
    """Counts in a value of its own, of which other ranks know nothing."""

    full_state_update = False

    def update(self, errors: torch.Tensor) -> None:
        self.counted = float(errors.sum())

    def compute(self) -> torch.Tensor:
        return torch.tensor(self.counted)


class Counted(Stateless):
    """A sum, merged in the way that it is given."""

    def __init__(self, reduction: Any) -> None:
        super().__init__()
        self.add_state("total", torch.tensor(0.0), dist_reduce_fx=reduction)

    def compute(self) -> torch.Tensor:
        assert isinstance(self.total, torch.Tensor)
        return self.total


def optimizers(name: Any) -> Any:
    return lambda model, config: {name: torch.optim.SGD(model.parameters(), lr=1.0)}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"step": lambda model, batch, context: None}, "step returned NoneType None, expected StepOutput"),
    ({"step": without_gradient}, "step's loss is .* without a gradient, expected a scalar"),
    ({"step": ends_the_process}, r"ended the process by exit\(0\)"),
    ({"model": lambda config, facts: [1]}, r"model returned list \[1\], expected Module"),
    ({"optimizer": lambda model, config: 3}, "optimizer returned int 3, expected Optimizer or Mapping"),
    ({"optimizer": lambda model, config: torch.optim.SGD(LOOSE.parameters(), lr=1.0)}, "belong to no optimizer"),
    ({"optimizer": optimizers("a/b")}, "optimizer: found the name 'a/b', expected a letter or digit and up to 39 more"),
    ({"optimizer": optimizers("")}, "optimizer: found the name '', expected a letter or digit"),
    ({"optimizer": optimizers(1)}, "optimizer: found the name 1, expected a letter or digit"),
    ({"samples": lambda config, caches: [1, 2]}, r"samples returned list \[1, 2\], expected Samples"),
    (
        {"files": names(model="../out.pth")},
        "files.names gives model the name '../out.pth', which is no plain file name",
    ),
    ({"lr_factor": lambda config, at: {"": "fast"}}, "lr_factor returned {'': 'fast'} at step 0, expected numbers"),
    ({"lr_factor": lambda config, at: -1.0}, "lr_factor returned -1.0 at step 0, expected numbers from 0"),
    ({"helpers": lambda config: {}}, "helpers returned dict {}, expected Module"),
    ({"optimizer": lambda model, config: torch.optim.SGD(model.parameters(), lr=-1.0)}, "optimizer: Invalid learning"),
    ({"facts": lambda config, caches: [1]}, r"facts returned list \[1\], expected Mapping"),
    ({"facts_without_data": lambda config: [1]}, r"facts_without_data returned list \[1\], expected Mapping"),
    ({"model": lambda config, facts: facts["clases"]}, "facts of recipe 'toy': there is no 'clases'; there are none"),
    ({"collate": lambda samples: [1]}, r"collate returned list \[1\], expected dict"),
    ({"on_device": lambda batch, config: None}, "on_device returned NoneType None, expected dict"),
    ({"validation": measured(lambda config, facts: [1])}, r"validation.metrics returned list \[1\], expected Mapping"),
    ({"validation": measured(lambda config, facts: {"a": 3})}, "by the name 'a', returned int 3, expected Metric"),
    (
        {"validation": measured(lambda config, facts: {"a": Counted(reduction=None)})},
        r"validation.metrics\['a'\]: Counted: its state 'total' has no dist_reduce_fx.*pass 'sum'",
    ),
    (
        {"validation": measured(lambda config, facts: {"a": Stateless()})},
        r"validation.metrics\['a'\]: Stateless has no state, .*self.add_state",
    ),
    (
        {"reports": Reports(watch_rules=lambda config: ["a"])},
        "reports.watch_rules returned str 'a', expected WatchRule",
    ),
    ({"reports": Reports(figures=lambda *given: {"a": "b"})}, "reports.figures gives 'a': 'b', expected a number"),
    ({"trees": Trees(root=lambda config: 3)}, "trees.root returned int 3, expected a folder, or None"),
    ({"files": names(model="a/b")}, "which is no plain file name"),
    ({"files": names(model=3)}, "which is a int, expected a text"),
    ({"files": names(modle="a.pth")}, "files.names has a part 'modle', expected some of .*; did you mean model"),
    ({"files": Files(shown=lambda *given: "abc")}, "files.shown: found 'abc', expected a list of file names"),
    (
        {"files": Files(shown=lambda *given: None)},
        r"files.shown: found None, expected a list of file names, \[\] for none",
    ),
    ({"files": Files(shown=lambda *given: ["a.pt", "a.pt"])}, r"found \['a.pt', 'a.pt'\], expected each name once"),
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


class Odd(Samples):
    """Samples, one of whose methods returns what it is given here."""

    def __init__(self, method: str, result: Any) -> None:
        self.results = {"epoch_draw": np.arange(4), "load": {"x": 1}, "shards_of": None, "name": "a", method: result}

    def __len__(self) -> int:
        return 4

    def epoch_draw(self, epoch: int) -> Any:
        return self.results["epoch_draw"]

    def load(self, index: int, epoch: int) -> Any:
        return self.results["load"]

    def name(self, index: int) -> Any:
        return self.results["name"]

    def shards_of(self, indices: Any) -> Any:
        return self.results["shards_of"]


@pytest.mark.parametrize(
    ("method", "result", "message"),
    [
        ("epoch_draw", [0, 1], r"samples.epoch_draw returned list \[0, 1\], expected ndarray"),
        ("epoch_draw", np.zeros(3), r"samples.epoch_draw returned \(3,\) values of float64, expected whole numbers"),
        ("epoch_draw", np.zeros((1, 3), int), r"samples.epoch_draw returned \(1, 3\) values of int64"),
        ("epoch_draw", np.array([2, -1]), "samples.epoch_draw draws sample -1, expected numbers from 0"),
        ("load", [1], r"samples.load returned list \[1\], expected dict"),
        ("name", 3, "samples.name returned int 3, expected str"),
        ("shards_of", np.zeros(2, int), "samples.shards_of returned 2 values of 4 samples, expected one each"),
    ],
)
def test_what_samples_return_is_checked(method: str, result: Any, message: str) -> None:
    samples = CheckedSamples("line", "samples", Odd(method, result))
    with pytest.raises(BadPart, match=f"recipe 'line': {message}"):
        {
            "epoch_draw": lambda: samples.epoch_draw(0),
            "load": lambda: samples.load(0, 0),
            "name": lambda: samples.name(0),
            "shards_of": lambda: samples.shards_of(np.arange(4)),
        }[method]()


ONE, TWO = torch.zeros(()), torch.zeros(2)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: StepOutput(ONE, parts={"a": 1.0}), r"StepOutput.parts\['a'\]: found float 1.0, expected a tensor"),
        (lambda: StepOutput(ONE, metrics={"a": TWO}), r"metrics\['a'\]: found a tensor of shape \(2,\)"),
        (lambda: StepOutput(ONE, scaled=[1]), "StepOutput.scaled: found a list, expected a mapping by tag"),
        (lambda: StepOutput(ONE, parts={3: ONE}), "StepOutput.parts: found the tag 3, expected a text"),
        (lambda: Evaluation({"loss": ONE}), r"totals\['loss'\]: found tensor\(0.\), expected a pair \(sum, count\)"),
        (lambda: Evaluation({"los": (ONE, 1)}), r"found \['los'\], expected `loss` among them"),
        (lambda: Evaluation({"loss": (TWO, 1)}), r"its sum is a tensor of shape \(2,\), expected a tensor with one"),
        (lambda: Evaluation({"loss": (ONE, "1")}), "its count is str '1', expected a number"),
        (lambda: Evaluation({"loss": (ONE, 1)}, largest={"a": TWO}), r"Evaluation.largest\['a'\]: found a tensor"),
        (lambda: Evaluation({"loss": (ONE, 1)}, pictures=[1]), "Evaluation.pictures: found a list"),
    ],
)
def test_what_a_step_and_an_evaluation_give_are_scalars_by_tag(made: Any, message: str) -> None:
    with pytest.raises(BadPart, match=message):
        made()


def test_a_name_that_is_not_there_is_answered_with_its_near_match() -> None:
    facts = Named("facts of recipe 'line'", {"classes": 3})
    assert facts["classes"] == 3 and facts.get("clases") is None
    with pytest.raises(BadPart, match="facts of recipe 'line': there is no 'clases'; did you mean 'classes'"):
        facts["clases"]


def test_an_advice_that_is_no_text_is_refused() -> None:
    rule: Any = WatchRule("loss-stands", lambda history: True)  # type: ignore[arg-type,return-value]
    with pytest.raises(BadPart, match="watch rule 'loss-stands': its check returned True, expected the advice"):
        advise([rule], [{"loss": 1.0}], 1)


def test_values_that_cannot_be_stacked_name_their_key() -> None:
    with pytest.raises(BadData, match="key x holds object, expected numbers"):
        stacked([{"x": object()}, {"x": object()}])


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
