"""Records that are none are passed over: those beside them are shown."""

from pathlib import Path

import pytest

from lead_protocol.object_keys import InstanceKeys
from lead_protocol.progress_record import ProgressRecord, to_bytes
from lead_protocol.store.folder import FolderStore
from lead_ui.assembled import attempts_of, instance_of
from lead_ui.event_files.instance_events import History
from lead_ui.log_lines import MOST_CHARS, read_lines
from lead_ui.records import instances_of, read_records

KEYS = InstanceKeys("team", "uid", "train", 3)


def report(attempt: int, phase: str, **fields: object) -> bytes:
    record = {"attempt": attempt, "seq": 1, "phase": phase, "epoch": 1, "epochs": 2, "step": 5, "steps": 10, **fields}
    return to_bytes(ProgressRecord.model_validate(record))


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[" * 100_000, b'{"reason": 1e999}', b'["reason"]', b"\xff" * 10, b"0" * 70_000]
)
def test_a_record_that_is_none_hides_no_other(tmp_path: Path, data: bytes) -> None:
    store = FolderStore(tmp_path)
    store.put(KEYS.progress(1), data)
    store.put(KEYS.progress(2), report(2, "Training"))
    store.put(KEYS.manifest(5, 0), data)
    store.put(KEYS.quarantine(5, 0), data)
    store.put("runs/team/uid/no-instance/file", data)
    assert instances_of(store, "team", "uid") == [KEYS]
    records = read_records(store, KEYS)
    assert list(records.attempts) == [2] and records.manifests == ()
    assert records.quarantined[(5, 0)]
    assert (instance_of(records).step, instance_of(records).percent) == (5, 50)


def test_an_attempt_that_stopped_reporting_is_lost_and_the_newest_of_a_run_that_lives_is_not(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put(KEYS.progress(1), report(1, "Training"))
    store.put(KEYS.progress(2), report(2, "Failed", message="out of memory"))
    store.put(KEYS.progress(3), report(3, "Training", resumed_from_step=5))
    found = attempts_of(read_records(store, KEYS), History(), lives=True)
    assert [each.outcome for each in found] == ["Lost", "Failed", "Running"]
    assert found[1].cause == "out of memory" and found[2].resumed_from_step == 5
    assert attempts_of(read_records(store, KEYS), History(), lives=False)[-1].outcome == "Lost"


def test_a_log_line_that_is_no_record_is_shown_as_it_is() -> None:
    lines = read_lines(
        '{"event": "epoch", "level": "info", "loss": 1.23456789, "deep": {"a": 1}}\n{"event\nplain\n' + "[" * 9000
    )
    assert (lines[0].event, lines[0].level, lines[0].rest) == ("epoch", "info", 'loss=1.2346 deep={"a": 1}')
    assert [line.event for line in lines[1:3]] == ['{"event', "plain"]
    assert len(lines[3].event) == MOST_CHARS
