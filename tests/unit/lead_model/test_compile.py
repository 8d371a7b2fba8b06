"""`compile=true`: steps run the compiled network, as far as an eager run would have come, under the same names."""

import copy
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
import torch
from torch._dynamo.utils import counters

from lead_testing.golden_model import without_dropout
from lead_testing.sample_batches import random_batch
from lead_trainer.contract.step import StepContext
from lead_trainer.engine.step import compilation
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.config_values import load_config
from lead_trainer.recipes.lead.recipe import RECIPE

SIZES = {
    "batch_size": 2, "image_height": 32, "image_width": 96, "min_x_meter": -16, "max_x_meter": 16, "min_y_meter": -16,
    "max_y_meter": 16, "pixels_per_meter": 1.0, "n_layer": 1, "radar_num_layers": 1,
}  # fmt: skip
COMPILER = shutil.which("g++") or shutil.which("clang++")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.compiler.reset()
    torch.set_num_threads(threads)


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[torch.nn.Module]:
    """Makes torch.compile trace as ever, but run the graph by torch itself: code for this network takes minutes.

    Returns the compiled models, each once a call.
    """
    calls: list[torch.nn.Module] = []
    plain = torch.compile

    def without_code(what: Any, **options: Any) -> Any:
        result = plain(what, backend="eager", **options)
        if isinstance(what, torch.nn.Module):
            result.register_forward_pre_hook(lambda module, _: calls.append(module))
        return result

    monkeypatch.setattr(torch, "compile", without_code)
    return calls


@pytest.mark.usefixtures("traced")
def test_the_whole_network_is_one_graph_with_the_losses_of_the_eager_one() -> None:
    config = load_config({**SIZES, "use_planning_decoder": True}, "demo")
    torch.manual_seed(0)
    model, batch = without_dropout(RECIPE.model(config, {})).train(), random_batch(config)
    eager = RECIPE.step(model, batch, StepContext(config=config))
    trained = compilation.compiled(model, torch.device("cpu"))
    counters.clear()
    step = RECIPE.step(trained, batch, StepContext(config=config))
    assert counters["stats"]["unique_graphs"] == 1 and not counters["graph_break"]
    torch.testing.assert_close(step.parts, eager.parts, rtol=1e-5, atol=1e-6)
    step.loss.backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad is not None for parameter in model.parameters())


def the_optimizer(model: torch.nn.Module, config: LeadConfig) -> torch.optim.Optimizer:
    made = RECIPE.optimizer(model, config)
    assert isinstance(made, torch.optim.Optimizer)
    return made


def a_step(trained: torch.nn.Module, optimizer: torch.optim.Optimizer, config: LeadConfig, number: int) -> float:
    output = RECIPE.step(trained, random_batch(config, seed=number), StepContext(config=config))
    optimizer.zero_grad()
    output.loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return output.loss.item()


def test_an_eager_checkpoint_goes_on_compiled_under_the_same_names(traced: list[torch.nn.Module]) -> None:
    config = load_config(SIZES, "demo")
    torch.manual_seed(0)
    model = without_dropout(RECIPE.model(config, {})).train()
    optimizer = the_optimizer(model, config)
    a_step(model, optimizer, config, 0)
    weights, moments = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    eager = [a_step(model, optimizer, config, number) for number in (1, 2)]

    resumed = without_dropout(RECIPE.model(config, {})).train()
    trained, optimizer = compilation.compiled(resumed, torch.device("cpu")), the_optimizer(resumed, config)
    resumed.load_state_dict(weights)
    optimizer.load_state_dict(moments)
    assert [a_step(trained, optimizer, config, number) for number in (1, 2)] == pytest.approx(eager, rel=1e-4)
    assert traced == [trained, trained]
    assert resumed.state_dict().keys() == weights.keys()  # what a checkpoint is made of
    assert not [name for name in resumed.state_dict() if "_orig_mod" in name]


@pytest.mark.skipif(not COMPILER, reason="torch.compile needs a C++ compiler for code on a CPU, and there is none")
def test_compiled_code_trains_like_torch_itself() -> None:
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(inplace=True)]
    model, pictures = torch.nn.Sequential(*layers), torch.rand(2, 3, 8, 8)
    expected = model(pictures).square().mean()
    wanted = torch.autograd.grad(expected, list(model.parameters()))
    trained = compilation.compiled(model, torch.device("cpu"))
    counters.clear()
    loss = trained(pictures).square().mean()
    loss.backward()
    assert counters["inductor"] and loss.item() == pytest.approx(expected.item(), rel=1e-5)
    for parameter, gradient in zip(model.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)


def test_without_a_compiler_the_run_is_warned_of_and_stays_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/g++")
    monkeypatch.setattr("torch._inductor.config.cpp.cxx", ("/nowhere/g++",))
    monkeypatch.setattr("torch._inductor.config.force_disable_caches", True)
    model = torch.nn.Linear(1, 1)
    with structlog.testing.capture_logs() as told:
        assert compilation.compiled(model, torch.device("cpu")) is model
    assert [line["log_level"] for line in told] == ["warning"]
    assert "this machine cannot compile" in told[0]["event"]
