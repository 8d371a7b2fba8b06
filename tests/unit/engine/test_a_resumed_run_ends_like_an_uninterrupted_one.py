"""Whatever ends an attempt, on whatever line: the next one continues, and the last weights are the same bits."""

from pathlib import Path
from typing import Any

import pytest

from lead_protocol.exit_codes import ExitCode
from lead_protocol.progress_record import parse_progress
from lead_protocol.store.folder import FolderStore
from lead_testing.toy_jobs import a_toy_job, manifests, progress_record, run_pod
from lead_testing.toy_runs import train_group, train_here


class Crash(BaseException):
    """The process is gone; nothing may catch this."""


class CrashingStore(FolderStore):
    """A store in which the k-th write is the process's last deed: just before it, or just after."""

    def __init__(self, root: Path, *, crash_at: int, after: bool) -> None:
        super().__init__(root)
        self.crash_at, self.after, self.writes = crash_at, after, 0

    def _write(self, method: str, *arguments: Any, **options: Any) -> Any:
        self.writes += 1
        if self.writes == self.crash_at and not self.after:
            raise Crash
        result = getattr(super(), method)(*arguments, **options)
        if self.writes == self.crash_at:
            raise Crash
        return result

    def create(self, key: str, data: bytes) -> bool:
        return self._write("create", key, data)

    def create_file(self, key: str, path: Path, *, sha256: str) -> bool:
        return self._write("create_file", key, path, sha256=sha256)

    def delete(self, key: str) -> None:
        return self._write("delete", key)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """Hash of the weights by step, of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    store = FolderStore(folder / "store")
    train_here(store, folder, a_toy_job(keep_last=100))
    return {manifest.step: manifest.parameters_sha256 for manifest in manifests(store)}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_at_any_write_to_the_store_changes_nothing(
    tmp_path: Path, uninterrupted: dict[int, str], after: bool
) -> None:
    writes = 0
    crash_at = 1
    while crash_at <= max(writes, 1):
        folder = tmp_path / str(crash_at)
        store = CrashingStore(folder / "store", crash_at=crash_at, after=after)
        try:
            train_here(store, folder, a_toy_job(epochs=2, keep_last=1))
            break  # the run makes fewer writes than this
        except Crash:
            writes = crash_at + 1
        whole = FolderStore(folder / "store")
        train_here(whole, folder, a_toy_job(2, epochs=2, keep_last=1))
        last = manifests(whole)[-1]
        assert (last.step, last.parameters_sha256) == (12, uninterrupted[12]), f"crash at write {crash_at}"
        crash_at += 1
    assert crash_at > 16  # two commits of seven files and a manifest each, at least


def test_a_stop_after_any_step_changes_nothing(tmp_path: Path, uninterrupted: dict[int, str]) -> None:
    store = FolderStore(tmp_path / "store")
    steps = []
    for attempt in range(1, 100):
        if train_here(store, tmp_path, a_toy_job(attempt, keep_last=100), stop_in_call=2) == ExitCode.DONE:
            break
        steps.append(manifests(store)[-1].step)
    assert steps == [2, 4, 6, 8, 10, 12, 14, 16]
    assert manifests(store)[-1].parameters_sha256 == uninterrupted[18]


def test_a_checkpoint_every_few_steps_changes_nothing(tmp_path: Path, uninterrupted: dict[int, str]) -> None:
    store = FolderStore(tmp_path / "store")
    train_here(store, tmp_path, a_toy_job(every_steps=4, keep_last=100))
    hashes = {manifest.step: manifest.parameters_sha256 for manifest in manifests(store)}
    assert sorted(hashes) == [4, 6, 8, 12, 16, 18]
    assert {step: hashes[step] for step in uninterrupted} == uninterrupted


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_group_that_lost_a_rank_ends_with_the_same_bits(tmp_path: Path, ranks: int) -> None:
    config = {"batch_size": 12, "samples": 72}
    assert train_group(tmp_path / "undisturbed", a_toy_job(config=config), ranks) == [ExitCode.DONE] * ranks
    expected = manifests(FolderStore(tmp_path / "undisturbed/store"))[-1]

    folder, attempt = tmp_path / "disturbed", 0
    for call, rank in ((3, 0), (9, ranks - 1), (5, 1)):
        attempt += 1
        codes = train_group(folder, a_toy_job(attempt, config=config), ranks, signal=f"KILL:{call}:{rank}")
        assert codes[rank] == -9
        assert {code for index, code in enumerate(codes) if index != rank} == {ExitCode.LOST_PEER}
    codes = train_group(folder, a_toy_job(attempt + 1, config=config), ranks, signal="TERM:2:1")
    assert codes == [ExitCode.STOPPED] * ranks  # one rank was asked, all stopped after the same step
    assert train_group(folder, a_toy_job(attempt + 2, config=config), ranks) == [ExitCode.DONE] * ranks
    last = manifests(FolderStore(folder / "store"))[-1]
    assert (last.step, last.parameters_sha256) == (expected.step, expected.parameters_sha256)


def test_a_pod_ends_in_the_code_and_words_of_the_worker_that_failed(tmp_path: Path) -> None:
    folder, store = tmp_path, FolderStore(tmp_path / "store")
    job = a_toy_job(1, processes=2, config={"async_checkpoints": False})  # the kill follows the commit of step 6
    killed = run_pod(folder, folder / "store", job, signal="KILL:9:1")
    assert killed.returncode == 128 + 9, killed.stderr
    word = parse_progress((folder / "termination-log").read_bytes())
    assert word is not None and word.phase == "Failed" and "worker process 1 was killed by SIGKILL" in word.message

    stopped = run_pod(folder, folder / "store", a_toy_job(2, processes=2), signal="TERM:2:1")
    assert stopped.returncode == ExitCode.STOPPED, stopped.stderr
    last = manifests(store)[-1]
    assert (last.step, last.epoch, last.step_in_epoch, last.attempt) == (8, 1, 2, 2)
    word = parse_progress((folder / "termination-log").read_bytes())
    assert word is not None and word.phase == "Stopped" and word.checkpoint is not None and word.checkpoint.step == 8
    record = progress_record(store, 2)
    assert record.phase == "Stopped" and record.resumed_from_step == 6
