"""Accumulation, parts, clipping, averaging, batch norms: each against a hand computation."""

import copy
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lead_trainer.engine.step.batch_norms import BatchNorms
from lead_trainer.engine.step.clip import Clipper
from lead_trainer.engine.step.ema import WeightAverage
from lead_trainer.engine.step.epoch_plan import EpochPlan, cut, next_parts
from lead_trainer.engine.step.optim import AdamWSettings, load_optimizer, make_adamw
from lead_trainer.engine.step.schedule import cosine, warm_restarts
from lead_trainer.errors import BadConfig, BadData


def a_batch(rows: int, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {"x": torch.randn(rows, 3, generator=generator), "y": torch.randn(rows, generator=generator)}


def gradients(model: torch.nn.Module, batches: list[dict[str, torch.Tensor]]) -> list[torch.Tensor]:
    model.zero_grad()
    for batch in batches:
        loss = torch.nn.functional.mse_loss(model(batch["x"]).squeeze(1), batch["y"])
        (loss / len(batches)).backward()
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("parts", [2, 4])
def test_gradients_of_the_parts_of_a_batch_are_those_of_the_batch(parts: int) -> None:
    model, batch = torch.nn.Linear(3, 1), a_batch(4)
    whole, in_parts = gradients(model, [batch]), gradients(model, list(cut(batch, parts, 4)))
    for one, other in zip(whole, in_parts, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_parts_share_rows_and_repeat_what_has_none() -> None:
    batch = {"x": torch.arange(6), "names": list("abcdef"), "scale": torch.tensor(2.0)}
    first, second = cut(batch, 2, 6)
    assert first["x"].tolist() == [0, 1, 2] and second["names"] == ["d", "e", "f"] and second["scale"] == 2.0


def test_seven_batches_of_four_make_two_steps_and_leave_none_out() -> None:
    plan = EpochPlan(batches=7, rank_batch=2, accumulate=4)
    assert (plan.steps, plan.batches_in(0), plan.batches_in(1), plan.first_batch(1)) == (2, 4, 3, 4)
    batches: Iterator[dict[str, torch.Tensor]] = iter([{"n": torch.tensor([n, n])} for n in range(7)])
    steps = [[int(micro["n"][0]) for micro in plan.micro_batches(batches, step)] for step in range(2)]
    assert steps == [[0, 1, 2, 3], [4, 5, 6]]
    with pytest.raises(BadData, match="ended in step 1 of 2"):
        list(plan.micro_batches(iter([]), 0))
    with pytest.raises(BadConfig, match="gradient_accumulation_steps: found 0"):
        EpochPlan(batches=7, rank_batch=2, accumulate=0)
    with pytest.raises(BadConfig, match="batch of 6 samples a process cannot be cut into 4 equal parts"):
        EpochPlan(batches=7, rank_batch=6, parts=4)


@given(st.integers(1, 64))
def test_the_parts_of_a_batch_grow_until_each_is_one_sample(rows: int) -> None:
    parts, seen = 1, []
    while (following := next_parts(parts, rows)) is not None:
        assert following > parts and rows % following == 0
        parts = following
        seen.append(parts)
    assert parts == rows and len(seen) == sum(rows % n == 0 for n in range(2, rows + 1))


def with_gradient(values: list[float]) -> torch.nn.Linear:
    model = torch.nn.Linear(len(values), 1, bias=False)
    model.weight.grad = torch.tensor([values])
    return model


def test_clipping_caps_the_norm_and_tells_what_it_was() -> None:
    model = with_gradient([3.0, 4.0])
    assert Clipper(max_norm=1.0).clip(model) == 5.0
    assert model.weight.grad is not None and float(model.weight.grad.norm()) == pytest.approx(1.0, abs=1e-5)
    model = with_gradient([3.0, 4.0])
    assert Clipper().clip(model) == 5.0
    assert torch.equal(model.weight.grad, torch.tensor([[3.0, 4.0]]))  # type: ignore[arg-type]


def test_the_quantile_clipper_caps_at_the_quantile_of_its_last_norms() -> None:
    clipper, norms = Clipper(quantile=0.5, history_length=4), [1.0, 3.0, 2.0, 8.0, 4.0]
    for number, norm in enumerate(norms):
        model = with_gradient([norm])
        clipper.clip(model)
        limit = min(norm, float(np.quantile(norms[max(0, number - 3) : number + 1], 0.5)))
        assert model.weight.grad is not None and float(model.weight.grad.norm()) == pytest.approx(limit, rel=1e-5)
    assert list(clipper.history) == [3.0, 2.0, 8.0, 4.0]
    clipper.clip(with_gradient([float("nan")]))
    assert list(clipper.history) == [3.0, 2.0, 8.0, 4.0]
    again = Clipper(quantile=0.5, history_length=4)
    again.load_state_dict(clipper.state_dict())
    assert again.history == clipper.history
    with pytest.raises(BadConfig, match=r"grad_quantile: found 1\.0"):
        Clipper(quantile=1.0)


def test_the_average_of_three_updates_is_exact() -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    average = WeightAverage(model, 0.9)
    for value in (1.0, 2.0, 4.0):
        model.weight.data.fill_(value)
        average.update(model)
    expected = 0.9 * (0.9 * 1.0 + 0.1 * 2.0) + 0.1 * 4.0
    assert float(average.model.state_dict()["weight"]) == pytest.approx(expected, rel=1e-6)
    assert average.updates == 3
    with pytest.raises(BadConfig, match="ema_decay: found 1"):
        WeightAverage(model, 1.0)


def test_frozen_batch_norms_keep_their_statistics_and_skipped_steps_undo_theirs() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    norms, before = BatchNorms(model), {name: value.clone() for name, value in model.state_dict().items()}
    for _ in range(3):
        model.train()
        norms.freeze()
        model(a_batch(8)["x"])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    model.train()
    norms.remember()
    model(torch.full((4, 3), float("nan")))
    assert not torch.isfinite(model[1].running_mean).all()  # type: ignore[arg-type]
    norms.undo()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_schedules_are_closed_forms_of_the_step() -> None:
    schedule = cosine(100, least=0.1)
    assert [schedule(0), schedule(50), schedule(100), schedule(500)] == pytest.approx([1.0, 0.55, 0.1, 0.1])
    assert warm_restarts(31, 1)(3) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="a cosine needs at least one step"):
        cosine(0)


def test_parts_of_a_model_have_rates_of_their_own_and_no_parameter_is_left_out() -> None:
    model = torch.nn.ModuleDict({name: torch.nn.Linear(2, 2) for name in ("encoder", "dynamics", "decoder")})
    settings = AdamWSettings(lr=1e-4, weight_decay=0.01, decay_norms_and_biases=False, group_lrs={"encoder": 1e-5})
    optimizer = make_adamw(model, settings)
    told = [(group["lr"], group["weight_decay"], len(group["params"])) for group in optimizer.param_groups]
    assert told == [(1e-5, 0.01, 1), (1e-5, 0.0, 1), (1e-4, 0.01, 2), (1e-4, 0.0, 2)]
    with pytest.raises(BadConfig, match="head: it has a learning rate of its own"):
        make_adamw(model, AdamWSettings(lr=1e-4, weight_decay=0.0, group_lrs={"head": 1.0}))


def a_half_frozen_model() -> torch.nn.Module:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
    model[1].requires_grad_(False)
    return model


def stepped(optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> dict[str, torch.Tensor]:
    for _ in range(2):
        optimizer.zero_grad()
        model[0](torch.ones(2, 3)).sum().add(model[2](torch.ones(2, 3)).sum()).backward()  # type: ignore[index]
        optimizer.step()
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


DECAYED = AdamWSettings(lr=0.1, weight_decay=0.5)


def test_what_is_frozen_has_a_place_in_the_optimizer_and_is_neither_moved_nor_decayed() -> None:
    model = a_half_frozen_model()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = make_adamw(model, DECAYED)
    after = stepped(optimizer, model)
    assert optimizer.state_dict()["param_groups"][0]["params"] == list(range(6))
    assert {name for name in before if torch.equal(before[name], after[name])} == {"1.weight", "1.bias"}
    with pytest.raises(ValueError, match="no trainable parameter"):
        make_adamw(model.requires_grad_(False), DECAYED)


def test_a_saved_optimizer_of_a_half_frozen_model_goes_on_where_it_was() -> None:
    model = a_half_frozen_model()
    optimizer = make_adamw(model, DECAYED)
    stepped(optimizer, model)
    saved, weights = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(model.state_dict())
    uninterrupted = stepped(optimizer, model)
    resumed = a_half_frozen_model()
    resumed.load_state_dict(weights)
    again = make_adamw(resumed, DECAYED)
    load_optimizer(again, saved)
    torch.testing.assert_close(stepped(again, resumed), uninterrupted, rtol=0, atol=0)


def test_an_optimizer_of_another_model_is_refused_with_what_to_do() -> None:
    other = torch.optim.AdamW(torch.nn.Linear(3, 3).parameters())
    with pytest.raises(BadConfig, match=r"optimizer.* found groups of \[2\] parameters, expected \[6\].*load_file"):
        load_optimizer(make_adamw(a_half_frozen_model(), DECAYED), other.state_dict())
