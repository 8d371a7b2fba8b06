"""A pod ends in the code of the worker that explains the others; signals reach every worker."""

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from lead_protocol.exit_codes import ExitCode
from lead_trainer.cli import main
from lead_trainer.cpu_limit import THREADS, cpu_share, limit_threads
from lead_trainer.errors import BadConfig
from lead_trainer.launcher import Ended, Worker, most_significant, run_workers
from lead_trainer.world import World, child_environments, visible_gpus, world_of


@pytest.mark.parametrize(
    ("codes", "telling"),
    [
        ([0, 0], 0),
        ([75, 75], 75),
        ([81, 64], 64),
        ([1, 66], 66),
        ([81, 137, 81], 137),
        ([81, 79], 79),
        ([81, 80], 80),
        ([81, 75], 81),
        ([134, 82, 81], 82),
        ([82, 64], 64),
    ],
)
def test_the_cause_wins_over_what_followed_from_it(codes: list[int], telling: int) -> None:
    assert most_significant([Ended(rank, code) for rank, code in enumerate(codes)]).code == telling


def a_worker(folder: Path, rank: int, program: str) -> Worker:
    return Worker([sys.executable, "-c", program], dict(os.environ), folder / f"word-{rank}")


WAITS = "import signal; signal.signal(signal.SIGTERM, lambda *_: exit(75)); print('ready', flush=True); signal.pause()"


def test_one_failed_worker_ends_the_others_even_deaf_ones(tmp_path: Path) -> None:
    deaf = tmp_path / "deaf"
    hears_nothing = "import pathlib, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    hears_nothing += f"pathlib.Path({str(deaf)!r}).touch()\nwhile True: signal.pause()"
    fails = f"import pathlib, time\nwhile not pathlib.Path({str(deaf)!r}).exists(): time.sleep(0.01)\nexit(64)"
    workers = [a_worker(tmp_path, 0, hears_nothing), a_worker(tmp_path, 1, fails), a_worker(tmp_path, 2, WAITS)]
    assert run_workers(workers, peer_grace_s=1.0) == Ended(1, ExitCode.BAD_CONFIG)


def test_a_worker_that_has_stopped_gives_the_one_that_still_commits_its_time(tmp_path: Path) -> None:
    stops = "import signal; signal.signal(signal.SIGTERM, lambda *_: exit(75)); exit(75)"
    commits = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    commits += "end = time.monotonic() + 1\nwhile time.monotonic() < end: time.sleep(0.01)\nexit(75)"
    workers = [a_worker(tmp_path, 0, commits), a_worker(tmp_path, 1, stops)]
    assert run_workers(workers, peer_grace_s=0.1) == Ended(0, ExitCode.STOPPED)


def a_worker_that_asks_for_the_stop(folder: Path, rank: int, *, once: Path) -> Worker:
    """Ends in 75 at SIGTERM, which it asks the launcher for when `once` exists."""
    program = "import os, pathlib, signal, time\nsignal.signal(signal.SIGTERM, lambda *_: exit(75))\n"
    program += f"while not pathlib.Path({str(once)!r}).exists(): time.sleep(0.01)\n"
    program += f"os.kill({os.getpid()}, signal.SIGTERM)\nsignal.pause()"
    return a_worker(folder, rank, program)


def test_a_stop_reaches_every_worker(tmp_path: Path) -> None:
    listens = tmp_path / "listens"
    waits = "import pathlib, signal\nsignal.signal(signal.SIGTERM, lambda *_: exit(75))\n"
    waits += f"pathlib.Path({str(listens)!r}).touch()\nsignal.pause()"
    assert threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    end = run_workers([a_worker_that_asks_for_the_stop(tmp_path, 0, once=listens), a_worker(tmp_path, 1, waits)])
    assert end.code == ExitCode.STOPPED
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_worker_that_did_not_listen_yet_is_stopped_and_no_error(tmp_path: Path) -> None:
    started = tmp_path / "started"
    deaf_yet = f"import pathlib, signal; pathlib.Path({str(started)!r}).touch(); signal.pause()"
    workers = [a_worker_that_asks_for_the_stop(tmp_path, 0, once=started), a_worker(tmp_path, 1, deaf_yet)]
    assert run_workers(workers).code == ExitCode.STOPPED


def test_a_worker_that_died_of_the_stop_is_waited_for_by_nobody_for_long(tmp_path: Path) -> None:
    started = tmp_path / "started"
    deaf_yet = f"import pathlib, signal; pathlib.Path({str(started)!r}).touch(); signal.pause()"
    asks = "import os, pathlib, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    asks += f"while not pathlib.Path({str(started)!r}).exists(): time.sleep(0.01)\n"
    asks += f"os.kill({os.getpid()}, signal.SIGTERM)\nwhile True: signal.pause()"  # as one that waits for its peers
    workers = [a_worker(tmp_path, 0, asks), a_worker(tmp_path, 1, deaf_yet)]
    assert run_workers(workers, peer_grace_s=0.1).code == ExitCode.LOST_PEER


def test_ranks_follow_from_node_and_process() -> None:
    environ = {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "rank-0.run", "PET_MASTER_PORT": "29501"}
    worlds = [world_of(child) for child in child_environments(environ, 2)]
    assert worlds == [World(2 + local, local, 4, 1, 2, "rank-0.run", 29501) for local in range(2)]
    assert world_of({}) == World()
    with pytest.raises(BadConfig, match="PET_NNODES is 'two'"):
        world_of({"PET_NNODES": "two"})


def test_gpus_and_cpus_are_counted_without_torch(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert visible_gpus({}, tmp_path) == 2
    assert visible_gpus({"NVIDIA_VISIBLE_DEVICES": "all"}, tmp_path) == 2
    assert visible_gpus({"NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b,GPU-c"}, tmp_path) == 3
    assert visible_gpus({"NVIDIA_VISIBLE_DEVICES": "void"}, tmp_path) == 0
    quota = tmp_path / "cpu.max"
    quota.write_text("150000 100000\n")
    assert (cpu_share(1, quota), cpu_share(4, quota)) == (1, 1)


@pytest.mark.parametrize(
    ("quota", "environ", "threads"),
    [
        ("200000 100000", {}, "2"),
        ("150000 100000", {}, "1"),
        ("800000 100000", {"LOCAL_WORLD_SIZE": "4"}, "2"),
        ("max 100000", {}, None),  # torch's own default, a thread a core, is right
        ("6400000 100000", {}, None),
        ("200000 100000", {THREADS: "8"}, "8"),  # somebody has said so
    ],
)
def test_torch_computes_with_no_more_threads_than_the_cpu_limit_of_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, environ: dict[str, str], threads: str | None
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(16))
    (tmp_path / "cpu.max").write_text(f"{quota}\n")
    limit_threads(environ, tmp_path / "cpu.max")
    assert environ.get(THREADS) == threads


def test_a_command_limits_its_threads_before_torch_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    limited: list[object] = []
    monkeypatch.setattr("lead_trainer.cli.limit_threads", limited.append)
    assert main(["config", "recipe=lead", "preset=demo"]) == 0
    assert limited == [os.environ]
    assert main(["pod", "--job", "/absent"]) != 0 and len(limited) == 1  # its children have shares of their own


def test_the_parent_of_workers_loads_no_torch() -> None:
    import subprocess

    program = "import sys, lead_trainer.cli, lead_trainer.pod; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
