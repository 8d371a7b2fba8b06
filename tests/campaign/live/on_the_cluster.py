"""Faults of the operator, of the cluster's own parts, and what administrators do."""

import contextlib
import json
import signal
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from campaign.live import host
from campaign.live.on_the_run import delete_pod, kill_rank
from campaign.live.scene import CACHE, LiveRun, cache_of, insist
from lead_testing.local_cluster import ensure_up
from lead_testing.local_cluster.images import repository_and_tag

MOMENT_S = 15.0
OPERATOR, URGENT = "deployment/lead-operator", "lead-campaign-urgent"
LEASE_S = 45.0  # it lasts 30


def delete_operator(run: LiveRun) -> None:
    run.release_do("delete", "pod", "-l", "app.kubernetes.io/component=operator", "--wait=false")


def kill_operator_twice(run: LiveRun) -> None:
    for _ in range(2):
        host.send(operator_processes(run), signal.SIGKILL)
        time.sleep(MOMENT_S)


def pause_operator(run: LiveRun) -> None:
    with host.stopped(operator_processes(run)):
        time.sleep(LEASE_S)


def operator_away(run: LiveRun) -> None:
    run.release_do("scale", OPERATOR, "--replicas=0")
    try:
        time.sleep(2 * MOMENT_S)
    finally:
        run.release_do("scale", OPERATOR, "--replicas=1")
        run.release_do("rollout", "status", OPERATOR, "--timeout=50s")


def operator_processes(run: LiveRun) -> list[int]:
    """Returns the processes of the operator."""
    pods = insist(lambda: run.scene.release.items("pods", "app.kubernetes.io/component=operator"))
    return [pid for pod in pods for pid, _, _ in host.processes_of(pod["metadata"]["uid"])]


def delete_lease(run: LiveRun) -> None:
    run.release_do("delete", "lease", "lead-operator", "--ignore-not-found")


def steal_lease(run: LiveRun) -> None:
    run.release_do("patch", "lease", "lead-operator", "--type=merge", "-p", '{"spec":{"holderIdentity":"somebody"}}')


@contextlib.contextmanager
def _stopped_part(name: str) -> Iterator[None]:
    with host.stopped([host.part(name)]):
        yield


def pause_api(run: LiveRun) -> None:
    with _stopped_part("kube-apiserver"):
        time.sleep(MOMENT_S)


def pause_etcd(run: LiveRun) -> None:
    with _stopped_part("etcd"):
        time.sleep(MOMENT_S)


def pause_kubelet(run: LiveRun) -> None:
    with _stopped_part("kubelet"):
        time.sleep(2 * MOMENT_S)


def pause_dns(run: LiveRun) -> None:
    with _stopped_part("coredns"):
        time.sleep(MOMENT_S)


def pause_scheduler(run: LiveRun) -> None:
    with _stopped_part("kube-scheduler"):
        kill_rank(run)
        time.sleep(MOMENT_S)


def pause_controllers(run: LiveRun) -> None:
    with _stopped_part("kube-controller-manager"):
        delete_pod(run)
        time.sleep(MOMENT_S)


def kill_api(run: LiveRun) -> None:
    host.send([host.part("kube-apiserver")], signal.SIGKILL)
    time.sleep(MOMENT_S / 3)
    ensure_up()


def kill_kubelet(run: LiveRun) -> None:
    host.send([host.part("kubelet")], signal.SIGKILL)
    time.sleep(MOMENT_S / 3)
    ensure_up()


def cordon(run: LiveRun) -> None:
    with _cordoned(run):
        kill_rank(run)
        time.sleep(MOMENT_S)


def drain(run: LiveRun) -> None:
    with _cordoned(run):
        for pod in run.pods():
            name = pod["metadata"]["name"]
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
            path = f"/api/v1/namespaces/{run.home.namespace}/pods/{name}/eviction"
            run.home.run("kubectl", "create", "--raw", path, "-f", "-", stdin=json.dumps(body))
        time.sleep(MOMENT_S)


def preempt(run: LiveRun) -> None:
    """A pod of higher priority asks for more than is left, for a while: the pods that came last make room."""
    pods = json.loads(run.do("get", "pods", "--all-namespaces", "-o", "json"))["items"]
    used = sum(map(_cpu, pods), Decimal(0))
    nodes = insist(lambda: run.home.items("nodes"))
    most = sum((parse_quantity(node["status"]["allocatable"]["cpu"]) for node in nodes), Decimal(0))
    wanted = {"cpu": f"{int((most - used) * 1000) + 1}m"}
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": URGENT}, "value": 9}
    container = {"name": "wait", "image": run.scene.images["operator"], "command": ["sleep", "600"],
                 "resources": {"requests": wanted}}  # fmt: skip
    spec = {"priorityClassName": URGENT, "containers": [container], "terminationGracePeriodSeconds": 0}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": URGENT, "namespace": "default"}, "spec": spec}
    try:
        for body in (urgent, pod):
            run.do("--namespace=default", "apply", "-f", "-", stdin=json.dumps(body))
        time.sleep(2 * MOMENT_S)
    finally:
        run.do("delete", "pod", URGENT, "--namespace=default", "--ignore-not-found")
        run.do("delete", "priorityclass", URGENT, "--ignore-not-found")


def _cpu(pod: dict[str, Any]) -> Decimal:
    """Returns the cores that a pod has asked for and holds."""
    if pod["status"].get("phase") in ("Succeeded", "Failed") or not pod["spec"].get("nodeName"):
        return Decimal(0)
    asked = [each.get("resources", {}).get("requests", {}).get("cpu", "0") for each in pod["spec"]["containers"]]
    return sum(map(parse_quantity, asked), Decimal(0))


@contextlib.contextmanager
def _cordoned(run: LiveRun) -> Iterator[None]:
    nodes = [node["metadata"]["name"] for node in insist(lambda: run.home.items("nodes"))]
    run.do("cordon", *nodes)
    try:
        yield
    finally:
        run.do("uncordon", *nodes)


def upgrade(run: LiveRun) -> None:
    run.scene.helm_upgrade(f"operator.logLevel={run.rng.choice(('DEBUG', 'INFO'))}")


def upgrade_and_kill(run: LiveRun) -> None:
    killer = threading.Timer(5, lambda: host.send(operator_processes(run), signal.SIGKILL))
    killer.start()
    try:
        run.scene.helm_upgrade(f"operator.relistSeconds={run.rng.randint(500, 700)}")
    finally:
        killer.join()


def wrong_image(run: LiveRun) -> None:
    repository, _ = repository_and_tag(run.scene.images["trainer"])
    run.scene.helm_upgrade(trainer=f"{repository}:absent")
    kill_rank(run)
    time.sleep(MOMENT_S)
    run.scene.helm_upgrade()


def quota(run: LiveRun) -> None:
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    run.do("apply", "-f", "-", stdin=json.dumps(body))
    try:
        kill_rank(run)
        time.sleep(MOMENT_S)
    finally:
        run.do("delete", "resourcequota", "none", "--ignore-not-found")


def delete_account(run: LiveRun) -> None:
    with _without(run, "serviceaccount", "lead-run"):
        kill_rank(run)
        time.sleep(MOMENT_S)


def delete_authority(run: LiveRun) -> None:
    with _without(run, "configmap", "lead-store-ca-default"):
        kill_rank(run)
        time.sleep(MOMENT_S)


def take_rights(run: LiveRun) -> None:
    with _without(run, "rolebinding", "lead-operator"):
        time.sleep(MOMENT_S)


@contextlib.contextmanager
def _without(run: LiveRun, kind: str, name: str) -> Iterator[None]:
    """Deletes an object of the chart in the run's namespace, and creates it again as it was."""
    body: dict[str, Any] = insist(lambda: run.home.get(kind, name))
    for key in ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"):
        body["metadata"].pop(key, None)
    run.do("delete", kind, name, "--ignore-not-found")
    try:
        yield
    finally:
        run.do("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(body))


def recreate_cache(run: LiveRun) -> None:
    run.do("delete", "datasetcache", CACHE, "--wait", "--ignore-not-found")
    kill_rank(run)
    time.sleep(MOMENT_S)
    run.do("apply", "-f", "-", stdin=json.dumps(cache_of(run.home)))
