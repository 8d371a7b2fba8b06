"""Each watch rule speaks for the curve it is for, once, and stays silent for a healthy one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead_protocol.progress_record import (
    MAX_RECORD_BYTES,
    Advisory,
    ProgressRecord,
    parse_progress,
    to_bytes,
)
from lead_trainer.contract.reports import WatchRule
from lead_trainer.engine.reporting.watch import ENGINE_RULES, WAITING, YOUNG, advise, divergence, one_line

HEALTHY = [1.0 / (epoch + 1) for epoch in range(30)]
CURVES = {
    "plateau": [1.0, 0.5, *([0.4] * 12)],
    "divergence": [1.0, 0.5, 0.6, 0.7, 0.9],
    "oscillation": [1.0, 0.5, 0.9, 0.4, 1.0, 0.5],
}


@pytest.mark.parametrize("rule", CURVES)
def test_a_rule_speaks_once_for_its_curve(rule: str) -> None:
    history = [{"loss": loss} for loss in CURVES[rule]]
    said = [one.rule for end in range(1, len(history) + 1) for one in advise(ENGINE_RULES, history[:end], end)]
    assert said == [rule]


def test_a_gap_between_training_and_validation_is_told() -> None:
    history = [{"loss": 1.0, "val/loss": 1.1}] + [{"loss": 0.2, "val/loss": 0.4}] * 3
    assert [one.rule for one in advise(ENGINE_RULES, history, 4)] == ["gap"]


def test_a_rule_speaks_once_a_stage() -> None:
    history = [{"loss": loss} for loss in (1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0)]
    told = [one.epoch for end in range(1, 9) for one in advise([WatchRule("up", divergence)], history[:end], end)]
    assert told == [4]


def test_a_young_average_of_the_weights_is_no_gap() -> None:
    young = [{"loss": 0.2, "val/loss": 2.0, YOUNG: share} for share in (1.0, 0.7, 0.4, 0.1)]
    assert advise(ENGINE_RULES, young, 4) == []
    grown = [*young, *[{"loss": 0.2, "val/loss": 0.4, YOUNG: 0.04}] * 3]
    assert [one.rule for one in advise(ENGINE_RULES, grown, 7)] == ["gap"]


def test_waiting_for_data_is_told() -> None:
    (said,) = advise(ENGINE_RULES, [{"loss": 1.0, WAITING: 0.4}], 1)
    assert said.rule == "slow-loading" and said.message.startswith("40%")


def test_a_healthy_run_hears_nothing() -> None:
    history = [{"loss": loss, "val/loss": 1.1 * loss, WAITING: 0.02} for loss in HEALTHY]
    assert [one for end in range(1, 31) for one in advise(ENGINE_RULES, history[:end], end)] == []


@given(st.lists(st.dictionaries(st.sampled_from(["loss", "val/loss", WAITING]), st.floats(-1e6, 1e6)), max_size=20))
def test_no_history_breaks_a_rule(history: list[dict[str, float]]) -> None:
    advise(ENGINE_RULES, history, len(history))


@given(st.text(max_size=2000))
def test_any_text_becomes_an_advisory_that_the_operator_reads(text: str) -> None:
    advisory = Advisory(rule="not-finite", epoch=1, message=one_line(text))
    record = ProgressRecord(
        attempt=1, seq=1, phase="Training", epoch=1, epochs=2, step=3, steps=4,
        message=one_line(text), advisories=[advisory] * 4, metrics={f"val/{n:060d}": 1.0 / 3 for n in range(16)},
    )  # fmt: skip
    data = to_bytes(record)
    assert len(data) <= MAX_RECORD_BYTES and parse_progress(data) is not None


@pytest.mark.parametrize("advisories", [
    [{"rule": "x", "epoch": 1, "message": "a\nb"}],
    [{"rule": "no such name!", "epoch": 1, "message": "a"}],
    [{"rule": "x", "epoch": 1, "message": "a" * 241}],
    [{"rule": "x", "epoch": 1, "message": "a"}] * 5,
    [{"rule": "x", "epoch": -1, "message": "a"}],
])  # fmt: skip
def test_hostile_advisories_are_no_record(advisories: list[dict[str, object]]) -> None:
    record = ProgressRecord(attempt=1, seq=1, phase="Training", epoch=1, epochs=2, step=3, steps=4).model_dump()
    assert parse_progress(json.dumps(record | {"advisories": advisories}).encode()) is None
