"""How etcd and kube-apiserver are called, and how one asks whether they answer; pure but for the probes.

Used by the control plane of the API tests (ephemeral ports, no root) and by the whole cluster.
"""

import os
import shutil
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

from lead_testing.local_cluster.errors import CannotRunHere
from lead_testing.local_cluster.pki import Authority, Identity


@dataclass(frozen=True)
class ApiServerSettings:
    """What differs between the control plane of the API tests and that of the whole cluster."""

    address: str
    port: int
    etcd_port: int
    service_range: str
    first_service_address: str
    authorization: str
    admission: tuple[str, ...]  # further flags of admission
    to_kubelets: bool


def server_identity(settings: ApiServerSettings) -> Identity:
    """Names the API server by every address and name its clients use."""
    names = (
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
    )
    addresses = dict.fromkeys((settings.address, settings.first_service_address, "127.0.0.1"))
    hosts = (*(f"DNS:{name}" for name in names), *(f"IP:{address}" for address in addresses))
    return Identity("apiserver", "kube-apiserver", hosts=hosts)


KUBELET_CLIENT = Identity("apiserver-to-kubelet", "kube-apiserver-kubelet-client", "system:masters")


def find_etcd() -> str:
    """Finds etcd; raises CannotRunHere naming its package."""
    found = shutil.which("etcd")
    if not found:
        raise CannotRunHere(
            "There is no `etcd` on PATH, which the API server stores its objects in: apt-get install etcd-server."
        )
    return found


def etcd_argv(program: str, data: Path, port: int, peer_port: int) -> tuple[str, ...]:
    """Builds etcd's command line: loopback only, and no fsync: a power cut may take what `up` makes anew."""
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    return (
        program, "--name=lead", f"--data-dir={data}", "--unsafe-no-fsync", "--log-level=warn", "--logger=zap",
        f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=lead={peer}",
        # Without progress notices the API server sends bookmarks only after a first event of a kind.
        "--experimental-watch-progress-notify-interval=5s",
        "--auto-compaction-mode=periodic", "--auto-compaction-retention=30m",
    )  # fmt: skip


def api_server_argv(program: Path, keys: Authority, settings: ApiServerSettings) -> tuple[str, ...]:
    """Builds kube-apiserver's command line."""
    kubelet_client = (
        f"--kubelet-client-certificate={keys.certificate(KUBELET_CLIENT.name)}",
        f"--kubelet-client-key={keys.key(KUBELET_CLIENT.name)}",
        f"--kubelet-certificate-authority={keys.certificate('ca')}",
        "--kubelet-preferred-address-types=InternalIP",  # else `kubectl logs` looks the node's name up in DNS
    )
    return (
        str(program),
        f"--bind-address={settings.address}", f"--advertise-address={settings.address}",
        f"--secure-port={settings.port}", f"--etcd-servers=http://127.0.0.1:{settings.etcd_port}",
        f"--service-cluster-ip-range={settings.service_range}",
        f"--authorization-mode={settings.authorization}", *settings.admission,
        f"--client-ca-file={keys.certificate('ca')}",
        f"--tls-cert-file={keys.certificate('apiserver')}", f"--tls-private-key-file={keys.key('apiserver')}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={keys.key('service-accounts')}",
        f"--service-account-key-file={keys.key('service-accounts')}",
        "--feature-gates=WatchList=false",  # Debian's etcd 3.4 lacks RequestWatchProgress, which it needs
        "--endpoint-reconciler-type=none" if not settings.to_kubelets else "--endpoint-reconciler-type=lease",
        *(kubelet_client if settings.to_kubelets else ()),
    )  # fmt: skip


def etcd_answers(port: int) -> bool:
    """Asks etcd whether it is healthy."""
    return answers_ok(f"http://127.0.0.1:{port}/health")


def api_server_answers(url: str, keys: Authority) -> bool:
    """Asks an API server whether it is ready to serve."""
    try:
        trust = ssl.create_default_context(cafile=keys.certificate("ca"))
        trust.load_cert_chain(keys.certificate("admin"), keys.key("admin"))
    except (FileNotFoundError, ssl.SSLError):
        return False
    return answers_ok(f"{url}/readyz", trust)


def answers_ok(url: str, trust: ssl.SSLContext | None = None, *, accept: str = "*/*") -> bool:
    """Asks for a page by GET and tells whether the answer is 200."""
    return _headers_of(url, trust, accept=accept) is not None


def header_of(url: str, name: str, *, accept: str = "*/*") -> str:
    """Asks for a page by GET and returns one header of a 200 answer, empty where there is none."""
    headers = _headers_of(url, None, accept=accept)
    return "" if headers is None else headers.get(name, "")


def _headers_of(url: str, trust: ssl.SSLContext | None, *, accept: str) -> Message | None:
    try:
        # No proxy of the environment: every address here is on this machine.
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if trust:
            handlers.append(urllib.request.HTTPSHandler(context=trust))
        request = urllib.request.Request(url, headers={"Accept": accept})
        with urllib.request.build_opener(*handlers).open(request, timeout=3) as answer:
            found: Message = answer.headers
            return found if answer.status == 200 else None
    except (urllib.error.URLError, OSError):
        return None


def trust_anyone() -> ssl.SSLContext:
    """Accepts the self-made certificate of a health page on loopback."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def no_proxy_environment() -> dict[str, str]:
    """Returns the environment for kubectl and helm: no proxy stands between this machine and itself."""
    proxies = {"http_proxy", "https_proxy", "all_proxy"}
    return {name: value for name, value in os.environ.items() if name.lower() not in proxies}
