"""Pods whose programs really run: each pod of an API server without kubelet is a `lead pod` process of this machine.

Scheduler and kubelet are still played by `pod_driver`; job, environment and store are those that the operator gave the
pod, with the root key of the test's store instead of a mounted Secret.
"""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lead_protocol import environment
from lead_protocol.store.object_store import ObjectStore
from lead_testing.minio_server import ROOT_PASSWORD, ROOT_USER
from lead_testing.pod_driver import Exit, Pod, PodDriver
from lead_testing.ports import free_port
from lead_testing.toy_jobs import pod_command

STOP_S = 60.0


class RealPods(PodDriver):
    """Groups of one pod each: a rendezvous over several would need their names resolved."""

    def __init__(self, kubeconfig: Path, namespace: str, store: ObjectStore, node: str, *, folder: Path) -> None:
        super().__init__(kubeconfig, namespace, store, node)
        self._folder = folder
        self._programs: dict[str, subprocess.Popen[bytes]] = {}  # by UID

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        for program in self._programs.values():
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)  # the trainer too, which is another process
            program.wait()

    def log(self, pod: str) -> str:
        """Returns what a pod's program has printed."""
        return (self._folder / pod / "log").read_text()

    def begin_training(self, pod: Pod) -> None:
        """Starts the pod's program."""
        meta = pod["metadata"]
        place = self._folder / meta["name"]
        place.mkdir(parents=True)
        (place / "job.json").write_text(meta["annotations"][environment.JOB_ANNOTATION])
        with (place / "log").open("wb") as log:
            self._programs[meta["uid"]] = subprocess.Popen(
                pod_command(place), env=_environment(pod), cwd=place, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

    def _work(self, pod: Pod, group: list[Pod]) -> None:
        code = self._programs[pod["metadata"]["uid"]].poll()
        if code is not None:
            message = self._folder / pod["metadata"]["name"] / "termination-log"
            self._end(pod, Exit(code, message.read_text() if message.exists() else ""))

    def _stop_pod(self, pod: Pod, phase: str) -> None:
        program = self._programs.get(pod["metadata"]["uid"])
        if program is not None:
            program.terminate()
            program.wait(STOP_S)
        super()._stop_pod(pod, phase)


def _environment(pod: dict[str, Any]) -> dict[str, str]:
    given = {each["name"]: each["value"] for each in pod["spec"]["containers"][0]["env"] if "value" in each}
    given.pop(environment.STORE_CREDENTIALS, None)
    return {
        **os.environ, **given, "AWS_ACCESS_KEY_ID": ROOT_USER, "AWS_SECRET_ACCESS_KEY": ROOT_PASSWORD,
        environment.MASTER_ADDR: "127.0.0.1", environment.MASTER_PORT: str(free_port()),
    }  # fmt: skip
