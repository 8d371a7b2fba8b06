"""Event files are read as TensorBoard reads them, however they grow, and hostile bytes cost neither time nor memory."""

import random
import struct
import time
from pathlib import Path

import numpy as np
import pytest

from lead_trainer.report.tensorboard import EventFile as Writer
from lead_ui.event_files.event_log import MAX_EVENT_BYTES, MAX_TAGS, EventLog
from lead_ui.event_files.instance_events import EventFile, History, InstanceEvents


def history_of(folder: Path) -> History:
    files = [EventFile(path.name, path.stat().st_size) for path in folder.iterdir()]

    def fetch(name: str, offset: int, length: int) -> bytes:
        return (folder / name).read_bytes()[offset : offset + length]

    return InstanceEvents().refresh(files, fetch)


def written(folder: Path, *, attempt: int = 1, first_step: int = 0, steps: range = range(1, 301)) -> bytes:
    writer = Writer(folder, None, "", attempt=attempt, first_step=first_step, on=True)
    for step in steps:
        writer.scalars({"loss": 1.0 / step + attempt, "metric/größe": float(step), "nan": float("nan")}, step)
        if step % 100 == 0:
            writer.picture("prediction", np.full((4, 6, 3), step % 255, np.uint8), step)
    writer.close()
    (path,) = folder.glob(f"*attempt-{attempt:04d}")
    return path.read_bytes()


def test_values_are_those_that_tensorboard_reads(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    written(tmp_path)
    history = history_of(tmp_path)
    theirs = EventAccumulator(str(tmp_path), size_guidance={"scalars": 0, "images": 0})
    theirs.Reload()
    assert set(history.series) == set(theirs.Tags()["scalars"])
    for tag, series in history.series.items():
        found = [(wall, step) for wall, step in zip(series.walls, series.steps, strict=True)]
        assert found == [(event.wall_time, event.step) for event in theirs.Scalars(tag)]
        np.testing.assert_array_equal(list(series.values), [event.value for event in theirs.Scalars(tag)])
    (file,) = tmp_path.iterdir()
    data = file.read_bytes()
    pictures = [data[each.at.offset : each.at.offset + each.at.length] for each in history.pictures]
    assert pictures == [event.encoded_image_string for event in theirs.Images("prediction")]


def test_a_file_that_grows_byte_by_byte_is_read_to_the_same_end(tmp_path: Path) -> None:
    data = written(tmp_path, steps=range(1, 40))
    at_once, slowly = EventLog(), EventLog()
    at_once.feed(data)
    for at in range(len(data)):
        slowly.feed(data[at : at + 1])
    assert not at_once.fault and slowly.series["loss"] == at_once.series["loss"]
    assert slowly.pictures == at_once.pictures and slowly.last_wall == at_once.last_wall


def test_a_resumed_attempt_replaces_the_steps_that_it_repeats(tmp_path: Path) -> None:
    written(tmp_path, steps=range(1, 201))
    written(tmp_path, attempt=2, first_step=150, steps=range(151, 301))
    history = history_of(tmp_path)
    series = history.series["loss"]
    assert list(series.steps) == list(range(1, 301))
    assert series.values[149] < 2 < series.values[150]
    assert [(span.attempt, span.host != "") for span in history.spans] == [(1, True), (2, True)]
    assert [each.at.step for each in history.pictures] == [100, 200, 300]


def test_a_file_without_its_end_shows_every_whole_point(tmp_path: Path) -> None:
    data = written(tmp_path, steps=range(1, 11))
    log = EventLog()
    log.feed(data[:-5])
    assert log.fault == "" and list(log.series["loss"].steps) == list(range(1, 11))
    assert len(log.series["nan"].steps) == 9


def test_hostile_bytes_end_in_a_fault_or_in_points_and_in_nothing_else(tmp_path: Path) -> None:
    """Pods write these files: bits are flipped, parts are cut, doubled and replaced, lengths are lies."""
    data, draw = written(tmp_path, steps=range(1, 60)), random.Random(7)
    faults, start = 0, time.process_time()
    for _ in range(1500):
        spoiled = bytearray(data)
        for _ in range(draw.randint(1, 8)):
            at = draw.randrange(len(spoiled) - 16)
            kind = draw.randrange(4)
            if kind == 0:
                spoiled[at] ^= 1 << draw.randrange(8)
            elif kind == 1:
                del spoiled[at : at + draw.randrange(1, 16)]
            elif kind == 2:
                spoiled[at : at + 8] = struct.pack("<Q", draw.choice([0, 1, 2**31, 2**63, 2**64 - 1]))
            else:
                spoiled[at:at] = draw.randbytes(draw.randrange(1, 32))
        log = EventLog()
        log.feed(bytes(spoiled))
        faults += bool(log.fault)
        assert sum(len(series.steps) for series in log.series.values()) <= len(spoiled) // 4
    assert faults > 250 and time.process_time() - start < 60


@pytest.mark.parametrize("length", [MAX_EVENT_BYTES + 1, 2**63, 2**64 - 1])
def test_a_message_that_claims_to_be_huge_is_not_waited_for(length: int) -> None:
    log = EventLog()
    log.feed(struct.pack("<Q", length) + bytes(100))
    assert str(length) in log.fault


def test_tags_are_limited(tmp_path: Path) -> None:
    writer = Writer(tmp_path, None, "", attempt=1, first_step=0, on=True)
    writer.scalars({f"tag/{number}": 1.0 for number in range(MAX_TAGS + 50)}, 1)
    writer.close()
    assert len(history_of(tmp_path).series) == MAX_TAGS
