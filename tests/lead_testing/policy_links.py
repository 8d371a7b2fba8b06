"""Pods as network namespaces on routed links, and NetworkPolicies as iptables rules between them; needs root.

The local cluster's network plugin enforces no policies. Here a node's namespace forwards between links, one a pod, as
Calico does, and each policy becomes rules as the API reference tells: a pod that policies select for a direction takes,
in that direction, what one of them allows, and answers to it; all other pods take everything.

    with PodLinks(pods, policies) as links:
        assert links.reaches("rank", "store", 9000)
"""

import ipaddress
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from lead_testing.local_cluster.commands import read_output, try_output
from lead_testing.local_cluster.packages import SYSTEM_PATH

GATEWAY = "169.254.1.1"  # of every pod's only route; the node answers for it
CONNECT_S = 3.0
_SERVE = """
import socket, sys, threading
servers = [socket.create_server(("0.0.0.0", int(port))) for port in sys.argv[1:]]
def accept(server):
    while True:
        server.accept()[0].close()
for server in servers:
    threading.Thread(target=accept, args=(server,), daemon=True).start()
print("listening", flush=True)
sys.stdin.read()
"""
_CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3])).close()
except OSError:
    sys.exit(7)
"""


@dataclass(frozen=True)
class LinkedPod:
    """One pod, or an address outside the cluster (no namespace), and what it listens on."""

    name: str
    address: str
    namespace: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    ports: tuple[int, ...] = ()


def can_run() -> str:
    """Tells what this machine lacks; empty where links can be made."""
    missing = [name for name in ("ip", "iptables") if shutil.which(name, path=SYSTEM_PATH) is None]
    if missing:
        return f"there is no {' and no '.join(missing)}: install iproute2 and iptables"
    return "" if os.geteuid() == 0 else "network namespaces need root"


class PodLinks:
    """The pods on their links while the block runs; every namespace that was made is deleted at its end."""

    def __init__(self, pods: Sequence[LinkedPod], policies: Sequence[dict[str, Any]]) -> None:
        self._pods = {pod.name: pod for pod in pods}
        self._policies = policies
        self._id = secrets.token_hex(3)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            node = self._make(stack, "node")
            _in(node, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
            read_output(["ip", "-n", node, "address", "add", f"{GATEWAY}/32", "dev", "lo"])
            for number, pod in enumerate(self._pods.values()):
                self._link(stack, node, number, pod)
            rules = "\n".join(["*filter", *build_rules(self._pods.values(), self._policies), "COMMIT", ""])
            read_output(["ip", "netns", "exec", node, "iptables-restore"], stdin=rules)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def reaches(self, origin: str, target: str, port: int) -> bool:
        """Opens a TCP connection from one pod to another; tells whether it stood."""
        words = ["ip", "netns", "exec", self._name(origin), sys.executable, "-c", _CONNECT]
        address = self._pods[target].address
        done = subprocess.run([*words, address, str(port), str(CONNECT_S)], capture_output=True, text=True, check=False)
        if done.returncode not in (0, 7):
            raise RuntimeError(f"the probe from {origin} to {target}:{port} broke: {done.stderr}")
        return done.returncode == 0

    def _name(self, pod: str) -> str:
        return f"lead-{self._id}-{pod}"

    def _make(self, stack: ExitStack, pod: str) -> str:
        name = self._name(pod)
        read_output(["ip", "netns", "add", name])
        stack.callback(try_output, ["ip", "netns", "delete", name])
        read_output(["ip", "-n", name, "link", "set", "lo", "up"])
        return name

    def _link(self, stack: ExitStack, node: str, number: int, pod: LinkedPod) -> None:
        name, link = self._make(stack, pod.name), f"pod{number}"
        read_output(["ip", "-n", node, "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name])
        for where, device, address in ((node, link, ""), (name, "eth0", f"{pod.address}/32")):
            if address:
                read_output(["ip", "-n", where, "address", "add", address, "dev", device])
            read_output(["ip", "-n", where, "link", "set", device, "up"])
        read_output(["ip", "-n", node, "route", "add", f"{pod.address}/32", "dev", link])
        read_output(["ip", "-n", name, "route", "add", GATEWAY, "dev", "eth0", "scope", "link"])
        read_output(["ip", "-n", name, "route", "add", "default", "via", GATEWAY, "dev", "eth0"])
        if not pod.ports:
            return
        words = ["ip", "netns", "exec", name, sys.executable, "-c", _SERVE, *map(str, pod.ports)]
        server = stack.enter_context(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        stack.callback(server.kill)
        assert server.stdout is not None
        if server.stdout.readline() != "listening\n":
            raise RuntimeError(f"the server of {pod.name} did not start")


def build_rules(pods: Iterable[LinkedPod], policies: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yields the filter rules of a forwarding node as iptables-restore takes them, for IPv4."""
    every, jumps, rules = list(pods), list[str](), list[str]()
    yield ":FORWARD ACCEPT [0:0]"
    for number, pod in enumerate(every):
        for direction, own, other in (("Egress", "-s", "-d"), ("Ingress", "-d", "-s")):
            isolating = [policy for policy in policies if _isolates(policy, direction, pod)]
            if not isolating:
                continue
            chain = f"{direction}-{number}"
            yield f":{chain} - [0:0]"
            jumps.append(f"-A FORWARD {own} {pod.address}/32 -j {chain}")
            for policy in isolating:
                for match in _matches(policy, direction, every, other):
                    rules.append(f"-A {chain}{match} -j RETURN")
            rules += [f"-A {chain} -p tcp -j REJECT --reject-with tcp-reset", f"-A {chain} -j REJECT"]
    yield "-A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT"
    yield from jumps  # one pod's way out and the other's way in: both have to let it by
    yield from rules


def _isolates(policy: dict[str, Any], direction: str, pod: LinkedPod) -> bool:
    spec = policy["spec"]
    chosen = pod.namespace == policy["metadata"]["namespace"] and _selects(spec["podSelector"], pod.labels)
    return chosen and direction in spec["policyTypes"]


def _matches(policy: dict[str, Any], direction: str, pods: list[LinkedPod], flag: str) -> Iterator[str]:
    """Yields what iptables has to match of a packet that the policy lets by, one for each address and port."""
    for rule in policy["spec"].get(direction.lower()) or []:
        ports = [f" -p {each.get('protocol', 'TCP').lower()} --dport {each['port']}" for each in rule.get("ports", [])]
        peers = rule.get("from" if direction == "Ingress" else "to")
        addresses = [""] if not peers else [f" {flag} {each}" for peer in peers for each in _blocks(policy, peer, pods)]
        for address in addresses:
            for port in ports or [""]:
                yield address + port


def _blocks(policy: dict[str, Any], peer: dict[str, Any], pods: list[LinkedPod]) -> list[str]:
    if "ipBlock" in peer:
        whole = ipaddress.ip_network(peer["ipBlock"]["cidr"])
        if not isinstance(whole, ipaddress.IPv4Network):
            return []
        parts = [whole]
        for each in peer["ipBlock"].get("except", []):
            hole = ipaddress.IPv4Network(each)
            cut = [list(part.address_exclude(hole)) if hole.subnet_of(part) else [part] for part in parts]
            parts = [part for pieces in cut for part in pieces]
        return [str(part) for part in parts]
    return [f"{pod.address}/32" for pod in pods if pod.namespace and _is_peer(policy, peer, pod)]


def _is_peer(policy: dict[str, Any], peer: dict[str, Any], pod: LinkedPod) -> bool:
    if "namespaceSelector" in peer:
        its_namespace = _selects(peer["namespaceSelector"], {"kubernetes.io/metadata.name": pod.namespace})
    else:
        its_namespace = pod.namespace == policy["metadata"]["namespace"]
    return its_namespace and _selects(peer.get("podSelector", {}), pod.labels)


def _selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    held = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    for each in selector.get("matchExpressions") or []:
        if each["operator"] not in ("In", "NotIn"):
            raise ValueError(f"{each['operator']} is not known here; teach it to this module")
        among = labels.get(each["key"]) in each["values"]  # who lacks the key is in no set, hence NotIn selects it
        held = held and among == (each["operator"] == "In")
    return held


def _in(namespace: str, *words: str) -> None:
    read_output(["ip", "netns", "exec", namespace, *words])
