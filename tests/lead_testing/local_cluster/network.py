"""The node's link, kernel settings and packet-filter rules: made by `up`, taken back by `down`."""

import json
import re
from pathlib import Path

from lead_testing.local_cluster import addresses as at
from lead_testing.local_cluster.commands import read_output, try_output

KERNEL_SETTINGS = {
    "net/ipv4/ip_forward": "1",
    "net/bridge/bridge-nf-call-iptables": "1",
    "fs/inotify/max_user_instances": "8192",
}
# Made by the kubelet, kube-proxy, the masquerading bridge and portmap.
OUR_CHAIN = re.compile(r"^:((?:KUBE|CNI)-\S+) ")


def make_node_link() -> None:
    """Gives the node an address of its own: a bridge (not every kernel has dummy links) with a /32."""
    if not link_exists(at.NODE_LINK):
        read_output(["ip", "link", "add", at.NODE_LINK, "type", "bridge"])
    read_output(["ip", "address", "replace", f"{at.NODE_ADDRESS}/32", "dev", at.NODE_LINK])
    read_output(["ip", "link", "set", at.NODE_LINK, "up"])


def link_exists(name: str) -> bool:
    """Tells whether a network link of this name exists."""
    return Path("/sys/class/net", name).exists()


def remove_links() -> None:
    """Deletes the node's and the pods' link; the pods' ends went with their namespaces."""
    for name in (at.POD_BRIDGE, at.NODE_LINK):
        if link_exists(name):
            read_output(["ip", "link", "delete", name])


def set_kernel_settings(memory: Path) -> None:
    """Sets what the cluster needs and remembers in `memory` what was there, once."""
    try_output(["modprobe", "-a", "br_netfilter", "overlay"])  # built in on some kernels, where this has nothing to do
    files = {name: Path("/proc/sys", name) for name in KERNEL_SETTINGS}
    if not memory.exists():
        before = {name: file.read_text().strip() for name, file in files.items() if file.exists()}
        memory.write_text(json.dumps(before))
    for name, file in files.items():
        if file.exists() and file.read_text().strip() != KERNEL_SETTINGS[name]:
            file.write_text(KERNEL_SETTINGS[name])


def restore_kernel_settings(memory: Path) -> None:
    """Sets the kernel as it was before the cluster."""
    if memory.exists():
        for name, value in json.loads(memory.read_text()).items():
            Path("/proc/sys", name).write_text(value)


def remove_filter_rules() -> None:
    """Takes the cluster's chains, and every rule that names one, out of the packet filter."""
    for program in ("iptables", "ip6tables"):
        undo = build_filter_removal(try_output([f"{program}-save"]))
        if undo:
            read_output([f"{program}-restore", "--noflush"], stdin=undo)


def filter_chains() -> list[str]:
    """Names the chains that the cluster's programs have made and that are still there."""
    saved = try_output(["iptables-save"]) + try_output(["ip6tables-save"])
    return [match[1] for line in saved.splitlines() if (match := OUR_CHAIN.match(line))]


def build_filter_removal(saved: str) -> str:
    """Turns the output of `iptables-save` into input of `iptables-restore --noflush` that removes our chains."""
    undo: list[str] = []
    for table in re.split(r"^COMMIT$", saved, flags=re.MULTILINE):
        lines = [line for line in table.strip().splitlines() if line and not line.startswith("#")]
        chains = [match[1] for line in lines if (match := OUR_CHAIN.match(line))]
        if not chains:
            continue
        foreign = [line for line in lines if line.startswith("-A ") and line.split()[1] not in chains]
        jumps = [line for line in foreign if set(line.split()[2:]) & set(chains)]
        undo.append(lines[0])  # "*nat"
        undo += [f"-D {line.removeprefix('-A ')}" for line in jumps]
        undo += [f"-F {chain}" for chain in chains]
        undo += [f"-X {chain}" for chain in chains]
        undo.append("COMMIT")
    return "\n".join(undo) + "\n" if undo else ""
