"""A pod that is told to stop while it waits for its group or loads goes at once: there is nothing to commit."""

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lead_protocol import environment
from lead_protocol.exit_codes import ExitCode
from lead_protocol.progress_record import parse_progress
from lead_protocol.store.folder import FolderStore
from lead_testing.toy_jobs import a_toy_job, manifests, pod_command, toy_environment
from lead_testing.toy_runs import train_group
from lead_trainer.engine.group.stop import StopFlag

STARTS_WITHIN_S, ENDS_WITHIN_S = 120, 60
Pod = subprocess.Popen[str]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Pod]]:
    """Starts a pod's main process; what is left of it is killed at the end."""
    pods: list[Pod] = []

    def started(config: dict[str, Any], **environ: str) -> Pod:
        (tmp_path / "job.json").write_text(a_toy_job(config=config).model_dump_json())
        pods.append(
            subprocess.Popen(
                pod_command(tmp_path),
                env={**toy_environment(tmp_path, tmp_path / "store"), **environ},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        )
        return pods[-1]

    yield started
    for pod in pods:
        if pod.poll() is None:
            os.killpg(pod.pid, signal.SIGKILL)
        pod.communicate()


def told_at_the_end(folder: Path) -> str:
    """Returns the phase and the words that the pod left for the kubelet."""
    word = parse_progress((folder / "termination-log").read_bytes())
    assert word is not None
    return f"{word.phase}: {word.message}"


def test_a_pod_whose_first_batch_does_not_come_stops_at_once(tmp_path: Path, start: Callable[..., Pod]) -> None:
    pod = start({"stuck_loading": True})
    assert pod.stdout is not None and any("training" in line for line in pod.stdout)
    pod.terminate()
    assert pod.wait(ENDS_WITHIN_S) == ExitCode.STOPPED
    assert not manifests(FolderStore(tmp_path / "store"))
    assert told_at_the_end(tmp_path).startswith("Stopped: worker process 0 got a stop signal before its first step")


def test_a_pod_that_waits_for_its_group_stops_at_once(tmp_path: Path, start: Callable[..., Pod]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(STARTS_WITHIN_S)
        place = {environment.NNODES: "2", environment.NODE_RANK: "1"}
        pod = start({}, **place, **{environment.MASTER_PORT: str(silent.getsockname()[1])})
        connection, _ = silent.accept()
        with connection:
            pod.terminate()
            assert pod.wait(ENDS_WITHIN_S) == ExitCode.STOPPED
    assert told_at_the_end(tmp_path).startswith("Stopped: ")


def test_a_rank_within_its_first_step_ends_by_the_signal_and_one_that_has_trained_commits(tmp_path: Path) -> None:
    assert train_group(tmp_path / "first", a_toy_job(), 1, signal="TERM:1:0") == [-signal.SIGTERM]
    assert train_group(tmp_path / "second", a_toy_job(), 1, signal="TERM:2:0") == [ExitCode.STOPPED]
    assert [manifest.step for manifest in manifests(FolderStore(tmp_path / "second/store"))] == [2]


def test_a_flag_that_waits_for_the_first_step_leaves_signals_alone_until_then() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        stop = StopFlag()
        stop.trained()
        assert signal.getsignal(signal.SIGTERM) == before[signal.SIGTERM], "nobody asked for it"
        stop.listen_later()
        assert signal.getsignal(signal.SIGTERM) == before[signal.SIGTERM]
        stop.trained()
        signal.raise_signal(signal.SIGTERM)
        assert stop.raised
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
