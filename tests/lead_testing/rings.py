"""Runs the test rings in order and prints each ring's time: unit, chart, api, cluster.

Called by `make test` with the machine's own python3, before anything is installed: standard library only. It makes
the virtual environment `.venv` of the checkout, then for each ring what its real servers need, where building has no
deadline and shows its steps, then one pytest. What a ring needs is made beside the ring before it, which mostly waits.
A ring that fails does not hide the next.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from lead_testing.local_cluster import CannotRun, Home, build_images, cluster_for_tests
from lead_testing.local_cluster.binaries import CONTROL_PLANE_PROGRAMS, ensure_programs
from lead_testing.local_cluster.commands import run_download, run_logged
from lead_testing.local_cluster.packages import (
    CONTROL_PLANE_PACKAGES,
    PROMETHEUS_PACKAGES,
    ensure_packages,
    install_packages,
)

PROJECT_ROOT = Path(__file__).resolve().parents[2]
VENV = PROJECT_ROOT / ".venv"
RINGS = {
    "house": ["tests/unit/house"],
    "unit": ["tests/unit"],
    "chart": ["tests/chart"],
    "api": ["tests/api"],
    "cluster": ["tests/cluster"],
}
PROGRAMS_OF = {
    "house": (),
    "unit": ("minio",),
    "chart": (*CONTROL_PLANE_PROGRAMS, "helm"),
    "api": (*CONTROL_PLANE_PROGRAMS, "minio", "helm"),
}
PACKAGES_OF = {ring: {**CONTROL_PLANE_PACKAGES, **PROMETHEUS_PACKAGES} for ring in ("chart", "api")}
# Rings of live servers on whatever machine this is: what fails once is tried once more, and both outcomes are printed.
TRIED_AGAIN = ("api", "cluster")
# A worker a core runs files side by side: they share read-only programs and, in the cluster, no namespace. Each worker
# has servers of its own, or a release, and may hold 2 GB of torch, an API server, or the pods of a run.
MOST_WORKERS = {"unit": 4, "chart": 4, "api": 4, "cluster": 2}
WAITING = ("api",)  # rings that mostly wait for other processes: one worker more than there are cores
IN_ORDER = ("api", "cluster")  # rings whose conftest says which files are begun first; else those of most tests are
NO_SERVERS = -1  # no exit status of a process that ended by itself
DEFAULT_RINGS = ("unit", "chart", "api", "cluster")


def main() -> int:
    """Makes the environment, runs the rings named on the command line (all by default), returns the exit status."""
    parser = argparse.ArgumentParser(prog="make test", description=__doc__.splitlines()[0])
    parser.add_argument("rings", nargs="*", help=f"of {', '.join(RINGS)}; default: {' '.join(DEFAULT_RINGS)}")
    parser.add_argument("--only-venv", action="store_true", help="make the virtual environment and stop")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.rings) - set(RINGS))
    if unknown:
        parser.error(f"unknown ring {unknown[0]!r}; expected one of {', '.join(RINGS)}")
    try:
        started = time.monotonic()
        make_venv()
        if arguments.only_venv:
            return 0
        times = [("environment", time.monotonic() - started, 0), *run_rings(arguments.rings or DEFAULT_RINGS)]
    except CannotRun as error:
        print(f"make test: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("make test: interrupted; run it again, finished steps are kept", file=sys.stderr)
        return 130
    return report(times)


@contextmanager
def servers_of(ring: str) -> Iterator[None]:
    """Builds and starts what a ring's tests talk to; raises CannotRun, with what to do, where that cannot be."""
    home = Home.from_environment()
    with ExitStack() as ends_with_the_ring:
        if ring == "cluster":
            build_images(ends_with_the_ring.enter_context(cluster_for_tests(home)), home)
        else:
            ensure_packages(home, PACKAGES_OF.get(ring, {}))
            ensure_programs(home, PROGRAMS_OF[ring])
        yield


class ServersAhead(threading.Thread):
    """A ring's servers, made in a thread from `start` on; `with` waits for them, and raises why there are none.

    An interrupt waits for nothing: what is half made, the next call goes on with, and `make cluster-down` removes.
    """

    def __init__(self, ring: str) -> None:
        super().__init__(name=f"servers of {ring}", daemon=True)
        self._servers: AbstractContextManager[None] = servers_of(ring)
        self._error: BaseException | None = None
        self._there = False

    def run(self) -> None:
        """Makes them; an error is kept for the ring."""
        try:
            self._servers.__enter__()
            self._there = True
        except BaseException as error:
            self._error = error

    def close(self) -> None:
        """Ends what has been made; a second call does nothing."""
        if self._there:
            self._there = False
            self._servers.__exit__(None, None, None)

    def __enter__(self) -> None:
        if self.ident is None:
            self.start()
        self.join()
        if self._error is not None:
            raise self._error

    def __exit__(self, *reason: object) -> None:
        self.close()


def run_rings(names: Sequence[str]) -> list[tuple[str, float, int]]:
    """Runs the rings in order, each beside the making of the next one's servers; returns what `run_ring` returns."""
    with ExitStack() as ends_with_the_rings:
        ahead = [ServersAhead(name) for name in names]
        for servers in ahead:
            ends_with_the_rings.callback(servers.close)
        return [run_ring(name, *ahead[number : number + 2]) for number, name in enumerate(names)]


def run_ring(name: str, servers: ServersAhead, of_the_next: ServersAhead | None = None) -> tuple[str, float, int]:
    """Runs one ring's pytest with its servers, and begins the next ring's; returns (name, seconds, exit status).

    Tests that find no server skip themselves; a ring of skips proves nothing, so without its servers it has failed.
    """
    print(f"\n=== ring {name} ===", flush=True)
    started, status = time.monotonic(), NO_SERVERS
    try:
        with servers:
            if of_the_next is not None:
                of_the_next.start()
            status = run_pytest(name)
    except CannotRun as error:
        print(f"ring {name}: {error}", file=sys.stderr, flush=True)
    return name, time.monotonic() - started, status


def run_pytest(name: str) -> int:
    """Runs one ring's tests; returns pytest's exit status."""
    command = [str(VENV / "bin/python"), "-m", "pytest", "-q", "--durations=5", *RINGS[name]]
    if name in TRIED_AGAIN:
        # One time limit holds for a test, the fixtures it is the first to use and its second try.
        command += ["--reruns=1", "--rerun-show-tracebacks", "-rfEsR", "--timeout=2400"]
    environment = dict(os.environ, PYTHONPATH=str(PROJECT_ROOT / "tests"), PYTHONUNBUFFERED="1")
    if name in MOST_WORKERS:
        workers = min((os.cpu_count() or 1) + (name in WAITING), MOST_WORKERS[name])
        command += [f"--numprocesses={workers}", "--dist=loadfile"]
        command += ["--no-loadscope-reorder"] * (name in IN_ORDER)
        environment["OMP_NUM_THREADS"] = "1"  # torch's threads of two workers would wait for each other
    environment["PATH"] = f"{VENV / 'bin'}:{environment.get('PATH', '')}"
    return subprocess.run(command, cwd=PROJECT_ROOT, env=environment, check=False).returncode


def report(times: list[tuple[str, float, int]]) -> int:
    """Prints each ring's time and verdict; returns 0 when all passed."""
    print("\nring         time      verdict")
    for name, seconds, status in times:
        why = "its servers cannot run here" if status == NO_SERVERS else f"pytest exit {status}"
        verdict = "passed" if status == 0 else f"FAILED ({why})"
        print(f"{name:<12} {seconds // 60:3.0f} min {seconds % 60:2.0f} s  {verdict}")
    print(f"{'all':<12} {sum(t for _, t, _ in times) / 60:.1f} min", flush=True)
    return 1 if any(status for _, _, status in times) else 0


def make_venv() -> None:
    """Makes or refreshes `.venv` so that it holds what pyproject.toml names; seconds when nothing changed."""
    stamp = VENV / "lead-dependencies.sha256"
    files = ("pyproject.toml", "images/locks/all.txt", "images/locks/uv.txt")
    inputs = b"".join((PROJECT_ROOT / name).read_bytes() for name in files) + sys.version.encode()
    wanted = hashlib.sha256(inputs).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    print(
        f"[environment] {VENV}: installing what images/locks names (torch alone is 2.5 GB the first time)", flush=True
    )
    if sys.version_info < (3, 11):  # noqa: UP036 - this is the line that an older python3 meets first
        raise CannotRun(f"python3 is {sys.version.split()[0]}, expected 3.11 or newer; set PYTHON=python3.11")
    if not (VENV / "bin/python").exists():
        create_venv()
    python = str(VENV / "bin/python")
    log = Home.from_environment().root / "logs" / "environment.log"
    locks = PROJECT_ROOT / "images/locks"
    hashed = ["-q", "--require-hashes", "-r"]
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", *hashed, str(locks / "uv.txt")]
    run_download(pip, log, cwd=PROJECT_ROOT)
    install = [str(VENV / "bin/uv"), "pip", "install", "--python", python]
    run_download([*install, *hashed, str(locks / "all.txt")], log, cwd=PROJECT_ROOT)
    run_download([*install, "-q", "--no-deps", "--no-build-isolation", "-e", "."], log, cwd=PROJECT_ROOT)
    partial = stamp.with_suffix(".part")
    partial.write_text(wanted)
    partial.rename(stamp)


def create_venv() -> None:
    """Creates the empty environment; installs Debian's python3-venv where only that is missing."""
    command = [sys.executable, "-m", "venv", str(VENV)]
    if subprocess.run(command, capture_output=True, check=False).returncode == 0:
        return
    shutil.rmtree(VENV, ignore_errors=True)
    home = Home.from_environment()
    install_packages(home, ["python3-venv"])
    run_logged(command, home.root / "logs" / "environment.log")


if __name__ == "__main__":
    sys.exit(main())
