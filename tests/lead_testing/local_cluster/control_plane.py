"""etcd and kube-apiserver alone, on ephemeral loopback ports: what the API tests talk to. Needs no root.

There is no kubelet, no scheduler and no controller: pods stay Pending until a test writes their status, and owner
references are not collected. The API server can be stopped, killed and started again under its clients.
"""

import contextlib
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from lead_testing.local_cluster import api_server, processes
from lead_testing.local_cluster.api_server import ApiServerSettings
from lead_testing.local_cluster.binaries import CONTROL_PLANE_PROGRAMS, ensure_programs
from lead_testing.local_cluster.errors import StepFailed
from lead_testing.local_cluster.home import Home
from lead_testing.local_cluster.pki import ADMIN, Authority, Identity
from lead_testing.local_cluster.processes import Part
from lead_testing.ports import free_ports

START_TIMEOUT_S = 300.0


class ControlPlane:
    """A context manager: inside it `url` answers and `kubeconfig` is an administrator's; after it nothing is left."""

    def __init__(self, state_dir: Path, home: Home | None = None, flags: tuple[str, ...] = ()) -> None:
        """Keeps everything under `state_dir`, which it creates; leaving removes keys and data, and keeps the logs.

        `flags` are further words of the API server's command line.
        """
        self.state_dir = state_dir.absolute()
        self.kubeconfig = self.state_dir / "kubeconfig"
        self._programs = ensure_programs(home or Home.from_environment(), CONTROL_PLANE_PROGRAMS)
        port, etcd_port, self._etcd_peer_port = free_ports(3)
        self._settings = ApiServerSettings(
            address="127.0.0.1", port=port, etcd_port=etcd_port,
            service_range="10.0.0.0/24", first_service_address="10.0.0.1", authorization="Node,RBAC",
            # No controller makes default service accounts here, and pods of tests need none.
            admission=("--disable-admission-plugins=ServiceAccount", *flags), to_kubelets=False,
        )  # fmt: skip
        self.url = f"https://127.0.0.1:{port}"
        self._keys = Authority(self.state_dir / "keys")
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            for identity in (api_server.server_identity(self._settings), ADMIN):
                self._keys.issue(identity)
            self._keys.write_kubeconfig(ADMIN, self.url, self.kubeconfig)
            self.start_etcd()
            self.start_apiserver()
        except BaseException:
            self._tear_down()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tear_down()

    def start_etcd(self) -> None:
        """Starts etcd on its port and waits until it is healthy; a no-op where it runs."""
        self._start(self._etcd_part(), lambda: api_server.etcd_answers(self._settings.etcd_port))

    def kill_etcd(self) -> None:
        """Kills etcd under the API server; its data stay."""
        self._stop("etcd", kill=True)

    def save_etcd(self, folder: Path) -> None:
        """Copies what etcd holds now to `folder`; the API server sees a moment without etcd."""
        self.kill_etcd()
        shutil.copytree(self.state_dir / "etcd", folder)
        self.start_etcd()

    def restore_etcd(self, folder: Path) -> None:
        """Sets etcd back to what `save_etcd` has copied, revisions too, and starts the API server anew."""
        self.stop_apiserver()
        self.kill_etcd()
        shutil.rmtree(self.state_dir / "etcd")
        shutil.copytree(folder, self.state_dir / "etcd")
        self.start_etcd()
        self.start_apiserver()

    def start_apiserver(self) -> None:
        """Starts the API server on its port and waits until it is ready; a no-op where it runs."""
        self._start(self._api_server_part(), lambda: api_server.api_server_answers(self.url, self._keys))

    def stop_apiserver(self) -> None:
        """Asks the API server to end (watches are closed in order) and waits until it is gone."""
        self._stop("kube-apiserver", kill=False)

    def kill_apiserver(self) -> None:
        """Kills the API server: every connection breaks at once."""
        self._stop("kube-apiserver", kill=True)

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Runs kubectl as administrator and returns what it prints; raises StepFailed where it fails."""
        argv = [str(self._programs["kubectl"]), "--kubeconfig", str(self.kubeconfig), *words]
        done = subprocess.run(
            argv, input=stdin, stdin=None if stdin is not None else subprocess.DEVNULL, capture_output=True, text=True,
            timeout=120, env=api_server.no_proxy_environment(), check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise StepFailed(
                f"`kubectl {' '.join(words)}` ended with {done.returncode}: {(done.stderr or done.stdout).strip()}"
            )
        return done.stdout

    def kubeconfig_for(self, identity: Identity) -> Path:
        """Writes a kubeconfig of somebody else, who has no rights but those that are bound to name or group."""
        path = self.state_dir / f"{identity.name}.kubeconfig"
        self._keys.issue(identity)
        self._keys.write_kubeconfig(identity, self.url, path)
        return path

    def _etcd_part(self) -> Part:
        data = self.state_dir / "etcd"
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        argv = api_server.etcd_argv(api_server.find_etcd(), data, self._settings.etcd_port, self._etcd_peer_port)
        return Part("etcd", argv, self.state_dir / "etcd.log")

    def _api_server_part(self) -> Part:
        argv = api_server.api_server_argv(self._programs["kube-apiserver"], self._keys, self._settings)
        # The flags' defaults would write self-made certificates into /var/run/kubernetes, which is root's.
        argv += (f"--cert-dir={self.state_dir / 'certificates'}",)
        return Part("kube-apiserver", argv, self.state_dir / "kube-apiserver.log")

    def _start(self, part: Part, answers: Callable[[], bool]) -> None:
        child = self._children.get(part.name)
        if child is None or child.poll() is not None:
            child = self._children[part.name] = processes.start(self.state_dir, part)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers():
            if child.poll() is not None or time.monotonic() > deadline:
                tail = "\n".join(part.log.read_text(errors="replace").splitlines()[-15:])
                raise StepFailed(f"{part.name} does not answer; its log {part.log} closes with\n{tail}")
            time.sleep(processes.POLL_S)

    def _stop(self, name: str, *, kill: bool) -> None:
        child = self._children.pop(name, None)
        if child is None:
            return
        if kill:
            child.kill()
        else:
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=20)
            child.kill()
        child.wait()

    def _tear_down(self) -> None:
        for name in ("kube-apiserver", "etcd"):
            self._stop(name, kill=True)
        for folder in ("etcd", "keys", "certificates"):
            shutil.rmtree(self.state_dir / folder, ignore_errors=True)
