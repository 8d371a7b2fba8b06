"""The processes of the whole cluster in the order of their start, with their probes. Called by `cluster`."""

import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lead_testing.local_cluster import addresses as at
from lead_testing.local_cluster import api_server, node_config
from lead_testing.local_cluster.api_server import KUBELET_CLIENT, ApiServerSettings
from lead_testing.local_cluster.home import Home
from lead_testing.local_cluster.packages import SYSTEM_PATH
from lead_testing.local_cluster.pki import ADMIN, Authority, Identity
from lead_testing.local_cluster.processes import Part
from lead_testing.local_cluster.volumes import DNS_USER

SETTINGS = ApiServerSettings(
    address=at.NODE_ADDRESS,
    port=at.API_PORT,
    etcd_port=at.ETCD_PORT,
    service_range=at.SERVICE_RANGE,
    first_service_address=at.FIRST_SERVICE_ADDRESS,
    authorization="Node,RBAC",
    admission=("--enable-admission-plugins=NodeRestriction",),
    to_kubelets=True,
)
KUBELET = Identity(
    "kubelet", f"system:node:{at.NODE_NAME}", "system:nodes", (f"IP:{at.NODE_ADDRESS}", f"DNS:{at.NODE_NAME}")
)
CLIENTS = (
    ADMIN,
    KUBELET,
    Identity("controller-manager", "system:kube-controller-manager"),
    Identity("scheduler", "system:kube-scheduler"),
    Identity("proxy", "system:kube-proxy"),
    Identity("coredns", DNS_USER),
)


@dataclass(frozen=True)
class Supervised:
    """A process and how one asks whether it works."""

    part: Part
    answers: Callable[[], bool]


def make_keys(state: Path) -> Authority:
    """Makes every certificate and kubeconfig of the cluster, the administrator's as `<state>/kubeconfig`."""
    keys = Authority(state / "keys")
    for identity in (api_server.server_identity(SETTINGS), KUBELET_CLIENT, *CLIENTS):
        keys.issue(identity)
    for identity in CLIENTS:
        path = state / "kubeconfig" if identity is ADMIN else _kubeconfig(state, identity.name)
        if not path.exists():
            keys.write_kubeconfig(identity, at.API_URL, path)
    return keys


def write_configuration(home: Home, state: Path, keys: Authority, pause_image: str) -> None:
    """Writes the configuration files of every part."""
    files = {
        _file(state, "kubelet.json"): node_config.kubelet_config(state, keys),
        _file(state, "containerd.toml"): node_config.containerd_config(home.containerd, pause_image),
        _file(state, "Corefile"): node_config.corefile(_kubeconfig(state, "coredns")),
        _file(state, "registry.json"): node_config.registry_config(home.registry),
        at.RUN_DIR / "cni" / "10-lead.conflist": node_config.cni_config(),
        at.RUN_DIR / "registries" / at.REGISTRY / "hosts.toml": node_config.registry_host_config(),
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def registry_part(state: Path) -> Supervised:
    """Builds the loopback registry's part; images are pushed to it before the node starts."""
    config = _file(state, "registry.json")
    argv = (_program("docker-registry"), "serve", str(config))
    return _supervised(state, "registry", argv, _http(at.REGISTRY_PORT, "/v2/"), (config,))


def containerd_part(state: Path) -> Supervised:
    """Builds containerd's part."""
    config = _file(state, "containerd.toml")
    argv = (_program("containerd"), "--config", str(config), "--log-level", "warn")
    return _supervised(state, "containerd", argv, _accepts_connections, (config,))


def control_plane_parts(state: Path, keys: Authority, programs: dict[str, Path]) -> list[Supervised]:
    """Builds, in this order: etcd, the API server, and the controllers, without which no released volume goes."""
    (state / "etcd").mkdir(parents=True, exist_ok=True, mode=0o700)
    etcd = api_server.etcd_argv(_program("etcd"), state / "etcd", at.ETCD_PORT, at.ETCD_PEER_PORT)
    api = api_server.api_server_argv(programs["kube-apiserver"], keys, SETTINGS)
    return [
        _supervised(state, "etcd", etcd, lambda: api_server.etcd_answers(at.ETCD_PORT)),
        _supervised(state, "kube-apiserver", api, lambda: api_server.api_server_answers(at.API_URL, keys)),
        _controller_manager(state, keys, programs["kube-controller-manager"]),
    ]


def node_parts(state: Path, keys: Authority, programs: dict[str, Path]) -> list[Supervised]:
    """Builds what needs a living API server; these start side by side."""
    return [
        _scheduler(state, programs["kube-scheduler"]),
        _kubelet(state, programs["kubelet"]),
        _proxy(state, programs["kube-proxy"]),
        _coredns(state, programs["coredns"]),
    ]


def all_parts(state: Path, keys: Authority, programs: dict[str, Path]) -> list[Supervised]:
    """Builds every part of the cluster in the order of their start."""
    first = [registry_part(state), containerd_part(state)]
    return [*first, *control_plane_parts(state, keys, programs), *node_parts(state, keys, programs)]


def _controller_manager(state: Path, keys: Authority, program: Path) -> Supervised:
    argv = (
        str(program), f"--kubeconfig={_kubeconfig(state, 'controller-manager')}", "--bind-address=127.0.0.1",
        f"--secure-port={at.CONTROLLER_MANAGER_PORT}", "--leader-elect=false", "--use-service-account-credentials",
        f"--service-account-private-key-file={keys.key('service-accounts')}",
        f"--root-ca-file={keys.certificate('ca')}",
        f"--cluster-signing-cert-file={keys.certificate('ca')}", f"--cluster-signing-key-file={keys.key('ca')}",
    )  # fmt: skip
    return _supervised(state, "kube-controller-manager", argv, _https(at.CONTROLLER_MANAGER_PORT))


def _scheduler(state: Path, program: Path) -> Supervised:
    argv = (
        str(program), f"--kubeconfig={_kubeconfig(state, 'scheduler')}", "--bind-address=127.0.0.1",
        f"--secure-port={at.SCHEDULER_PORT}", "--leader-elect=false",
    )  # fmt: skip
    return _supervised(state, "kube-scheduler", argv, _https(at.SCHEDULER_PORT))


def _kubelet(state: Path, program: Path) -> Supervised:
    config = _file(state, "kubelet.json")
    argv = (
        str(program), f"--config={config}", f"--kubeconfig={_kubeconfig(state, 'kubelet')}",
        f"--hostname-override={at.NODE_NAME}", f"--node-ip={at.NODE_ADDRESS}", f"--root-dir={state / 'kubelet'}",
        f"--cert-dir={state / 'keys'}",
    )  # fmt: skip
    return _supervised(state, "kubelet", argv, _http(at.KUBELET_HEALTH_PORT, "/healthz"), (config,))


def _proxy(state: Path, program: Path) -> Supervised:
    argv = (
        str(program), f"--kubeconfig={_kubeconfig(state, 'proxy')}", "--proxy-mode=iptables",
        f"--cluster-cidr={at.POD_RANGE}", f"--hostname-override={at.NODE_NAME}",
        "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s",
        f"--healthz-bind-address=127.0.0.1:{at.PROXY_HEALTH_PORT}",
        f"--metrics-bind-address=127.0.0.1:{at.PROXY_METRICS_PORT}",
    )  # fmt: skip
    return _supervised(state, "kube-proxy", argv, _http(at.PROXY_HEALTH_PORT, "/healthz"))


def _coredns(state: Path, program: Path) -> Supervised:
    config = _file(state, "Corefile")
    argv = (str(program), "-conf", str(config))
    return _supervised(state, "coredns", argv, _http(at.DNS_HEALTH_PORT, "/health", at.NODE_ADDRESS), (config,))


def _supervised(
    state: Path, name: str, argv: tuple[str, ...], answers: Callable[[], bool], reads: tuple[Path, ...] = ()
) -> Supervised:
    # containerd and the kubelet look runc, mount and iptables up on PATH, which a user's shell may have cut short.
    part = Part(name, argv, state / "logs" / f"{name}.log", reads, {"PATH": SYSTEM_PATH, "HOME": str(state)})
    return Supervised(part, answers)


def _program(name: str) -> str:
    return shutil.which(name, path=SYSTEM_PATH) or name


def _file(state: Path, name: str) -> Path:
    return state / "config" / name


def _kubeconfig(state: Path, name: str) -> Path:
    return state / "config" / f"{name}.kubeconfig"


def _http(port: int, path: str, address: str = "127.0.0.1") -> Callable[[], bool]:
    return lambda: api_server.answers_ok(f"http://{address}:{port}{path}")


def _https(port: int) -> Callable[[], bool]:
    return lambda: api_server.answers_ok(f"https://127.0.0.1:{port}/healthz", api_server.trust_anyone())


def _accepts_connections() -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(str(at.CONTAINERD_SOCKET))
    except OSError:
        return False
    return True
