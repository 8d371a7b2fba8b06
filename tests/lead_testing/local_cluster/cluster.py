"""Brings the local cluster up, down, and tells how it is; every call may be repeated, and interrupted anywhere.

`up` compares what runs with what should run and starts the difference; it keeps no record of its own.
"""

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lead_testing.local_cluster import addresses as at
from lead_testing.local_cluster import containers, network, processes
from lead_testing.local_cluster.binaries import CLUSTER_PROGRAMS, ensure_programs, program_path
from lead_testing.local_cluster.commands import try_output
from lead_testing.local_cluster.errors import CannotRunHere, StepFailed
from lead_testing.local_cluster.home import Home
from lead_testing.local_cluster.locks import exclusive
from lead_testing.local_cluster.packages import (
    CLUSTER_PACKAGES,
    IMAGE_PACKAGES,
    ensure_packages,
    observe_machine,
    what_is_missing,
)
from lead_testing.local_cluster.parts import (
    Supervised,
    all_parts,
    containerd_part,
    control_plane_parts,
    make_keys,
    node_parts,
    registry_part,
    write_configuration,
)
from lead_testing.local_cluster.pause_image import ensure_pause_image, pause_reference
from lead_testing.local_cluster.progress import say, step
from lead_testing.local_cluster.side_by_side import run_side_by_side
from lead_testing.local_cluster.volumes import apply_first_objects

READY_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class PartStatus:
    """One line of `status`."""

    name: str
    state: str  # "healthy", "running but does not answer", "not running"
    log: Path


def up(home: Home, state: Path, meanwhile: Callable[[], None] | None = None) -> None:
    """Starts what does not run, restarts what runs with old settings, and returns when the node is ready.

    `meanwhile` begins beside the programs and is not waited for.
    """
    needed = (*CLUSTER_PROGRAMS, "minio")  # whose image everything asks for that is installed here
    missing = what_is_missing(observe_machine(home, needed))
    if missing:
        raise CannotRunHere(missing)
    if meanwhile is not None:
        threading.Thread(target=meanwhile, daemon=True).start()
    with exclusive(home.locks / "cluster", "starting or stopping the cluster"):
        # apt-get waits for the network while the compiler has the cores.
        packages = {**CLUSTER_PACKAGES, **IMAGE_PACKAGES}
        run_side_by_side([partial(ensure_packages, home, packages), partial(ensure_programs, home, needed)], at_once=2)
        programs = {name: program_path(home, name) for name in needed}
        state.mkdir(parents=True, exist_ok=True)
        at.RUN_DIR.mkdir(parents=True, exist_ok=True)
        network.set_kernel_settings(state / "kernel-settings.json")
        network.make_node_link()
        keys = make_keys(state)
        write_configuration(home, state, keys, pause_reference())
        _start(state, [registry_part(state), containerd_part(state)])
        ensure_pause_image(home)
        for one in control_plane_parts(state, keys, programs):
            _start(state, [one])
        kubectl = kubectl_argv(home, state)
        # The server's own start-up roles come a moment after it says it is ready.
        _wait_until(lambda: bool(try_output([*kubectl, "get", "clusterrole", "system:node"])), "the built-in roles")
        apply_first_objects(kubectl, state / "volumes")
        _start(state, node_parts(state, keys, programs))
        _wait_until(lambda: _node_is_ready(kubectl), "the node to be Ready")
        ready = [*kubectl, "get", "serviceaccount", "default"]
        _wait_until(lambda: bool(try_output(ready)), "the default service account")


def down(home: Home, state: Path) -> None:
    """Stops the cluster and removes every trace but the caches of programs and images."""
    with exclusive(home.locks / "cluster", "starting or stopping the cluster"), step("stopping the local cluster"):
        for name in ("kubelet", "kube-proxy", "coredns", "kube-scheduler", "kube-controller-manager"):
            _stop(state, name)
        containers.kill_pods()
        if (state / "config" / "containerd.toml").exists():
            _start(state, [containerd_part(state)])
            containers.remove_containers()
        for name in ("containerd", "kube-apiserver", "etcd", "registry"):
            _stop(state, name)
        for pid in processes.find_all_marked(state):  # containerd's shims, whose containers are gone
            processes.stop(pid)
        containers.unmount_below(at.RUN_DIR, state)
        containers.remove_pod_cgroups()
        containers.remove_network_records()
        network.remove_links()
        network.remove_filter_rules()
        network.restore_kernel_settings(state / "kernel-settings.json")
        containers.remove_folder(at.RUN_DIR)
        containers.remove_folder(state)


def was_started(state: Path) -> bool:
    """Tells whether a start or an interrupted `down` left a process or a file; a kubeconfig alone may be kind's."""
    if processes.find_all_marked(state):
        return True
    return state.is_dir() and any(not entry.name.startswith("kubeconfig") for entry in state.iterdir())


def status(home: Home, state: Path) -> list[PartStatus]:
    """Asks every part how it is; an empty list where the cluster was never started or is down."""
    if not (state / "config" / "containerd.toml").exists():
        return []
    programs = {name: program_path(home, name) for name in CLUSTER_PROGRAMS}
    return [_status_of(state, one) for one in all_parts(state, make_keys(state), programs)]


def remnants(state: Path) -> list[str]:
    """Lists what a cluster has left on this machine; empty after `down`."""
    found = [f"process {pid}" for pid in (*processes.find_all_marked(state), *containers.pod_processes())]
    found += [f"mount {target}" for target in containers.mounts_below(at.RUN_DIR, state)]
    found += [f"link {name}" for name in (at.NODE_LINK, at.POD_BRIDGE) if network.link_exists(name)]
    found += [f"packet filter chain {name}" for name in network.filter_chains()]
    found += [f"cgroup {path}" for path in containers.pod_cgroups()]
    return found + [f"folder {path}" for path in (at.RUN_DIR, state) if path.exists()]


def kubectl_argv(home: Home, state: Path) -> list[str]:
    """Returns the beginning of a kubectl command line for this cluster's administrator, with no proxy between."""
    kubectl = [str(program_path(home, "kubectl")), f"--kubeconfig={state / 'kubeconfig'}"]
    return ["env", f"NO_PROXY={at.NODE_ADDRESS}", *kubectl]


def _start(state: Path, wanted: Sequence[Supervised]) -> None:
    """Starts what does not run as wanted, then waits until every one answers."""
    started = []
    for one in wanted:
        running = processes.find_running(state, one.part.name)
        if running and running.version == one.part.version():
            continue
        if running:
            say(f"restarting {one.part.name}: its settings have changed")
            processes.stop(running.pid)
        if one.answers():
            raise StepFailed(f"another program answers at the address of {one.part.name} ({one.part.argv[0]}): stop it")
        processes.start(state, one.part)
        started.append(one.part.name)
    if started:
        say(f"started {', '.join(started)}")
    for one in wanted:
        _wait_for_answer(state, one)


def _wait_for_answer(state: Path, one: Supervised) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not one.answers():
        if time.monotonic() > deadline or processes.find_running(state, one.part.name) is None:
            tail = "\n".join(
                "    " + line[:300] for line in one.part.log.read_text(errors="replace").splitlines()[-15:]
            )
            raise StepFailed(f"{one.part.name} does not answer; its log {one.part.log} closes with\n{tail}")
        time.sleep(processes.POLL_S)


def _stop(state: Path, name: str) -> None:
    running = processes.find_running(state, name)
    if running:
        processes.stop(running.pid)


def _wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise StepFailed(f"waited {READY_TIMEOUT_S:.0f} s for {what}; `make cluster-status` names the logs")
        time.sleep(0.1)


def _node_is_ready(kubectl: list[str]) -> bool:
    answer = try_output([*kubectl, "get", "node", at.NODE_NAME, "-o", "json"])
    conditions = json.loads(answer)["status"].get("conditions", []) if answer else []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _status_of(state: Path, one: Supervised) -> PartStatus:
    if processes.find_running(state, one.part.name) is None:
        return PartStatus(one.part.name, "not running", one.part.log)
    return PartStatus(one.part.name, "healthy" if one.answers() else "running but does not answer", one.part.log)
