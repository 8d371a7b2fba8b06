"""The real operator as a child process of a test: started, killed, frozen, counted.

    with OperatorProcess(kubeconfig, folder, namespace, profiles) as operator: …

It is forked from a server that has the operator's libraries loaded: importing them costs seconds of CPU each time.
With DIE_AFTER_WRITE in its environment it kills itself, as kill -9 would, right after the API server has carried out
its k-th write and before it has read the answer: a crash point that no signal from outside can hit.
CONSTANTS sets module constants (JSON: {"package.module.NAME": value}), so that a test need not wait out deadlines made
for production. CLOCK names a file that holds how many seconds the operator's wall clock is ahead of the true one.
CODE names a folder with the operator's packages of another version, which then run instead of those of this checkout.
"""

import importlib
import json
import multiprocessing
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lead_testing.local_cluster.api_server import no_proxy_environment
from lead_testing.minio_server import ROOT_PASSWORD, ROOT_USER
from lead_testing.ports import free_port

DIE_AFTER_WRITE = "LEAD_TEST_DIE_AFTER_WRITE"
CONSTANTS = "LEAD_TEST_CONSTANTS"
CLOCK = "LEAD_TEST_CLOCK"
CODE = "LEAD_TEST_CODE"
KILLED = 137
PATIENCE_S = 180.0  # what is waited for comes in seconds; only a crowded machine or a mistake takes longer
PATIENT = {"lead_operator.kube.lease.RENEW_DEADLINE_S": PATIENCE_S}  # a slow machine takes no leader's lease away
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["lead_testing.operator_process", "lead_operator.handlers.startup"])
OPEN_POLICY = json.dumps({  # closed lists have tests of their own
    **{f"allowed{what}": ["*"] for what in ("PriorityClasses", "Schedulers", "Queues", "Labels", "Annotations",
       "NodeSelectors", "Tolerations", "StorageClasses", "Claims", "Resources")},
    "maxNodes": 256, "maxPodsPerRun": 4096, "maxGpusPerPod": 10**6,
})  # fmt: skip
TRAINER_IMAGE = "registry.invalid/lead-trainer@sha256:" + "0" * 64


class OperatorProcess:
    """One operator at a time against one namespace; `start` again after `kill` is what kubelet would do."""

    def __init__(
        self, kubeconfig: Path, folder: Path, namespace: str, endpoint: str, bucket: str, *, pod: str = "operator-0"
    ) -> None:
        self._folder = folder
        self._port = free_port()
        self._process: multiprocessing.context.ForkServerProcess | None = None
        profiles = {
            "default": {
                "endpoint": endpoint,
                "bucket": bucket,
                "secure": False,
                "secretName": "lead-s3",
                "shared": ["datasets/", "weights/"],
            }
        }
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "profiles.json").write_text(json.dumps(profiles))
        keys = folder / "credentials" / "default"
        keys.mkdir(parents=True, exist_ok=True)
        (keys / "access-key").write_text(ROOT_USER)
        (keys / "secret-key").write_text(ROOT_PASSWORD)
        self.environment = {
            **no_proxy_environment(),
            "KUBECONFIG": str(kubeconfig),
            "HOSTNAME": pod,
            "LEAD_TRAINER_IMAGE": TRAINER_IMAGE,
            "LEAD_STORAGE_PROFILES_FILE": str(folder / "profiles.json"),
            "LEAD_OPERATOR_CREDENTIALS_DIR": str(folder / "credentials"),
            "LEAD_RUN_NAMESPACES": namespace,
            "LEAD_RELEASE_NAMESPACE": namespace,
            "LEAD_HEALTH_PORT": str(self._port),
            "LEAD_METRICS_AUTHENTICATION": "None",
            "LEAD_POLICY": OPEN_POLICY,
            "LEAD_PROGRESS_SECONDS": "1",
            "LEAD_RESYNC_SECONDS": "20",
            "LEAD_RELIST_SECONDS": "20",
            "LEAD_LOG_LEVEL": "INFO",
            CONSTANTS: json.dumps(PATIENT),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def log(self) -> Path:
        """What all processes of this operator logged."""
        return self._folder / "operator.log"

    @property
    def address(self) -> str:
        """Where it serves its pages, host:port."""
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """Process id of the running operator."""
        assert self._process is not None and self._process.pid is not None
        return self._process.pid

    def start(self, **environment: str) -> Self:
        """Starts the operator; does not wait for anything."""
        assert self.exit_status() is not None or self._process is None, "the operator runs already"
        self._process = FORKS.Process(target=_run, args=(self.log, {**self.environment, **environment}), daemon=True)
        self._process.start()
        return self

    def kill(self) -> None:
        """Kills the operator as kill -9 does; a no-op where it is dead."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None

    def terminate(self) -> int:
        """Asks the operator to end, as kubelet does; returns its exit status."""
        assert self._process is not None
        self._process.terminate()
        self._process.join(timeout=30)
        status = self._process.exitcode
        assert status is not None, "the operator did not end within 30 s"
        self._process = None
        return status

    def freeze(self) -> None:
        """Stops the operator's clock hands: it neither reads nor writes until `thaw`."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets a frozen operator go on."""
        os.kill(self.pid, signal.SIGCONT)

    def exit_status(self) -> int | None:
        """Returns the exit status, or None while the operator runs."""
        return None if self._process is None else self._process.exitcode

    def page(self, path: str) -> tuple[int, str]:
        """Returns status and text of one of the operator's pages; (0, "") while nobody listens."""
        try:
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(f"http://127.0.0.1:{self._port}/{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name: str, **labels: str) -> float:
        """Returns the sum of a metric's samples whose labels hold all of `labels`."""
        total = 0.0
        for line in self.page("metrics")[1].splitlines():
            if line.startswith((f"{name}{{", f"{name} ")) and all(f'{k}="{v}"' in line for k, v in labels.items()):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def looks(self) -> float:
        """Returns how many passes over runs the operator has made."""
        return self.metric("lead_reconcile_duration_seconds_count", kind="TrainingRun")

    def pauses(self) -> list[float]:
        """Returns for how many seconds the operator paused after each pass that failed."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line["again_s"] for line in lines if line.get("event") == "pass_failed"]

    def writes(self) -> float:
        """Returns how many writes the operator has sent, leases apart, and events apart that were there: those stay."""
        verbs = tuple(f'verb="{verb}"' for verb in ("post", "patch", "put", "delete"))
        calls = [line for line in self.page("metrics")[1].splitlines() if line.startswith("lead_api_calls_total{")]
        there = ('resource="events"', 'code="409"')
        sent = [line for line in calls if any(verb in line for verb in verbs) and 'resource="leases"' not in line
                and not all(part in line for part in there)]  # fmt: skip
        return sum(float(line.rsplit(" ", 1)[1]) for line in sent)  # of one page: the lease is renewed meanwhile


def wait_for(what: str, condition: Any, *, within_s: float = PATIENCE_S, poll_s: float = 0.1) -> Any:
    """Calls `condition` until it returns something true, and returns that; fails with `what` at the deadline."""
    deadline = time.monotonic() + within_s
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {within_s:.0f} s in vain for: {what}; last seen: {found!r}")
        time.sleep(poll_s)


def _run(log: Path, environment: dict[str, str]) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.clear()
    os.environ.update(environment)
    if code := os.environ.pop(CODE, ""):  # two versions of a package do not fit into one interpreter
        begin = "from lead_testing.operator_process import run_as_told; run_as_told()"
        os.execve(sys.executable, [sys.executable, "-c", begin], {**os.environ, "PYTHONPATH": code})
    run_as_told()


def run_as_told() -> None:
    """Runs the operator as the environment says, and ends the process with its exit status."""
    environment = os.environ
    for name, value in json.loads(environment.get(CONSTANTS, "{}")).items():
        module, _, constant = name.rpartition(".")
        vars(importlib.import_module(module))[constant]  # a KeyError here names a constant that is no more
        setattr(importlib.import_module(module), constant, value)
    if CLOCK in environment:
        _shift_the_clock(Path(environment[CLOCK]))
    sys.exit(_run_until_the_fatal_write(int(environment.get(DIE_AFTER_WRITE, "0"))))


def _shift_the_clock(file: Path) -> None:
    class Shifted(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Shifted":
            ahead = timedelta(seconds=float(file.read_text()))
            return cls.fromtimestamp((datetime.now(UTC) + ahead).timestamp(), tz)

    for name in ("server_clock", "lease", "event_recorder"):
        module = importlib.import_module(f"lead_operator.kube.{name}")
        assert vars(module)["datetime"] is datetime
        vars(module)["datetime"] = Shifted


def _run_until_the_fatal_write(fatal: int) -> int:
    from lead_operator.__main__ import main
    from lead_operator.kube.client import KubeClient

    send = KubeClient._send
    writes = 0

    async def counted(self: KubeClient, method: str, path: str, **arguments: Any) -> Any:
        nonlocal writes
        response = await send(self, method, path, **arguments)
        if method != "GET" and "/leases" not in path:
            writes += 1
            if writes == fatal:
                os._exit(KILLED)
        return response

    if fatal:
        KubeClient._send = counted  # type: ignore[method-assign]
    return main(["run"])
