"""What the side-by-side bench reads off an audit log, and how it sums it up."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench.operator.audit import AuditLog, Call, span_to_last_pod, times_to_last_pod
from bench.operator.report import lines, missed_goals, percentile, table


def call(verb: str, resource: str, name: str, received: float, user: str = "op", code: int = 201) -> Call:
    return Call(user, verb, resource, "many", name, code, received, received + 0.5)


def begins(one: Call) -> bool:
    return one.made("trainingruns")


CALLS = [
    call("create", "trainingruns", "b0", 1.0),
    call("create", "trainingruns", "b1", 2.0),
    call("create", "pods", "b0-pretrain-s0-a1-0", 3.0),
    call("create", "pods", "b0-pretrain-s0-a1-1", 4.0),
    call("create", "pods", "b1-pretrain-s0-a1-0", 5.0),
    call("create", "pods", "b1-pretrain-s0-a1-1", 5.5, code=409),
]


def test_a_run_is_timed_from_its_create_to_the_answer_of_its_last_pod() -> None:
    assert times_to_last_pod(CALLS, begins, 2) == {"b0": 3.5}
    assert times_to_last_pod(CALLS, begins, 1) == {"b0": 2.5, "b1": 3.5}


def test_a_burst_is_timed_from_the_first_create_to_the_last_pod_that_was_made() -> None:
    assert span_to_last_pod(CALLS, begins) == 4.5


def test_refused_calls_and_leases_are_no_writes() -> None:
    assert call("patch", "trainingruns/status", "b0", 0, code=200).wrote
    assert not call("patch", "trainingruns/status", "b0", 0, code=409).wrote
    assert not call("update", "leases", "lead-operator", 0, code=200).wrote
    assert not call("list", "pods", "", 0, code=200).wrote


@pytest.mark.parametrize(("share", "found"), [(0.5, 2.0), (0.99, 4.0), (0.25, 1.0), (1.0, 4.0)])
def test_percentiles_are_values_that_were_measured(share: float, found: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], share) == found


def test_a_log_is_read_on_as_it_grows_and_a_half_written_line_waits(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    assert log.mark() == 0
    event = json.dumps(an_event("b0")) + "\n"
    log.file.write_text(event + event[:40])
    assert [one.run for one in log.since(0)] == ["b0"]
    mark = log.mark()
    log.file.write_text(event + event)
    assert [(one.name, one.resource, one.answered - one.received) for one in log.since(mark)] == [
        ("b0-a", "pods/status", 0.25)
    ]


def an_event(run: str) -> dict[str, Any]:
    target = {"resource": "pods", "subresource": "status", "namespace": "many", "name": f"{run}-a"}
    return {
        "user": {"username": "op"}, "verb": "patch", "objectRef": target, "responseStatus": {"code": 200},
        "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z", "stageTimestamp": "2026-01-01T00:00:00.250000Z",
    }  # fmt: skip


def test_the_table_shows_median_and_range_and_names_each_goal_that_is_missed() -> None:
    results: dict[str, Any] = {
        "ours": {"life": [{"writes_a_run": 14.0}, {"writes_a_run": 12.0}, {"writes_a_run": 15.0}]},
        "v1.8.1": {"life": [{"writes_a_run": 13.0}]},
    }
    measures = lines(100, 64, 1000)
    assert "| writes of one run's life | ≤ 13 | 14 (12–15, n=3) | 13 (n=1) |" in table(results, measures)
    assert missed_goals(results, measures, "ours") == ["writes of one run's life: 14, goal ≤ 13"]
    assert missed_goals(results, measures, "v1.8.1") == []
