"""Starting, finding and stopping a part: a real process each."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from lead_testing.local_cluster import processes
from lead_testing.local_cluster.processes import Part


@pytest.fixture
def part(tmp_path: Path) -> Iterator[Part]:
    settings = tmp_path / "settings"
    settings.write_text("one")
    yield Part("sleeper", ("sleep", "300"), tmp_path / "log", reads=(settings,))
    for pid in processes.find_all_marked(tmp_path):
        processes.stop(pid)


def test_a_started_part_is_found_without_any_record_and_gone_after_stop(tmp_path: Path, part: Part) -> None:
    pid = processes.start(tmp_path, part).pid
    running = processes.find_running(tmp_path, "sleeper")
    assert running is not None
    assert (running.pid, running.version) == (pid, part.version())
    processes.stop(pid)
    assert processes.find_running(tmp_path, "sleeper") is None


def test_a_part_of_another_cluster_is_not_found(tmp_path: Path, part: Part) -> None:
    processes.start(tmp_path, part)
    assert processes.find_running(tmp_path / "other", "sleeper") is None
    assert processes.find_running(tmp_path, "sleep") is None


def test_a_changed_file_or_flag_changes_the_version(part: Part) -> None:
    before = part.version()
    assert dataclasses.replace(part, argv=("sleep", "301")).version() != before
    part.reads[0].write_text("two")
    assert part.version() != before


def test_a_part_that_does_not_heed_the_request_is_killed(tmp_path: Path) -> None:
    deaf = Part("deaf", ("sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 300; done"), tmp_path / "log")
    pid = processes.start(tmp_path, deaf).pid
    while "deaf" not in deaf.log.read_text():
        assert processes.is_alive(pid)
    processes.stop(pid, grace_s=0.2)
    assert not processes.is_alive(pid)
    for child in processes.find_all_marked(tmp_path):
        processes.stop(child)
    assert processes.find_all_marked(tmp_path) == []
