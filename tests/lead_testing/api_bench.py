"""What one API test works with: a namespace, a bucket, pods that move, an operator, and the eyes of a user."""

import contextlib
import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import urllib3
import yaml

from lead_protocol.store.s3 import S3Store
from lead_testing.kube_faults.plan import Plan
from lead_testing.kube_faults.proxy import FaultProxy
from lead_testing.local_cluster.control_plane import ControlPlane
from lead_testing.minio_server import MinioServer
from lead_testing.operator_process import PATIENCE_S, OperatorProcess, wait_for
from lead_testing.pod_driver import Api, ApiRefused, PodDriver

_PATHS = {
    "trun": "apis/lead.dev/v1alpha1/namespaces/{namespace}/trainingruns",
    "dsc": "apis/lead.dev/v1alpha1/namespaces/{namespace}/datasetcaches",
    "pod": "api/v1/namespaces/{namespace}/pods",
    "service": "api/v1/namespaces/{namespace}/services",
    "pvc": "api/v1/namespaces/{namespace}/persistentvolumeclaims",
    "lease": "apis/coordination.k8s.io/v1/namespaces/{namespace}/leases",
}


@dataclass
class Bench:
    """What one test works with."""

    plane: ControlPlane
    minio: MinioServer
    namespace: str
    store: S3Store
    driver: PodDriver
    operator: OperatorProcess
    proxy: FaultProxy | None = None
    patience_s: float = PATIENCE_S

    def apply(self, *bodies: dict[str, Any]) -> None:
        """Applies manifests as a user does."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(bodies)})
        self.plane.kubectl("-n", self.namespace, "apply", "-f", "-", stdin=text)

    def kubectl(self, *words: str) -> str:
        """Runs kubectl in the test's namespace."""
        return self.plane.kubectl("-n", self.namespace, *words)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Returns one object, or an empty dict where it or the API server is away; cheap enough for polling."""
        try:
            return self.driver.api.call("GET", f"/{_PATHS[kind].format(namespace=self.namespace)}/{name}")
        except (ApiRefused, urllib3.exceptions.HTTPError):
            return {}

    def items(self, kind: str) -> list[dict[str, Any]]:
        """Returns all objects of a kind, without their apiVersion and kind; raises where the API server is away."""
        path = f"/{_PATHS[kind].format(namespace=self.namespace)}"
        found: list[dict[str, Any]] = self.driver.api.call("GET", path)["items"]
        return found

    def status(self, kind: str, name: str) -> dict[str, Any]:
        """Returns an object's status, or an empty dict."""
        found: dict[str, Any] = self.get(kind, name).get("status", {})
        return found

    def wait_phase(self, kind: str, name: str, *phases: str, within_s: float = PATIENCE_S) -> dict[str, Any]:
        """Waits until the phase is one of `phases`; returns the status."""
        last: dict[str, Any] = {}

        def reached() -> bool:
            self.driver.refuse_to_be_dead()
            last.clear()
            last.update(self.status(kind, name))
            return last.get("phase") in phases

        try:
            wait_for(f"{kind} {name} to be {' or '.join(phases)}", reached, within_s=within_s, poll_s=0.2)
        except AssertionError as late:
            log = self.operator.log.read_text()[-3000:] if self.operator.log.exists() else ""
            raise AssertionError(f"{late}; status: {json.dumps(last)[:3000]}\noperator's log ends:\n{log}") from None
        return last

    def pods(self, role: str = "train") -> list[dict[str, Any]]:
        """Returns the living pods of a role."""
        return [p for p in self.driver.pods() if p["metadata"]["labels"].get("lead.dev/role") == role]


@contextlib.contextmanager
def open_bench(
    plane: ControlPlane, minio: MinioServer, folder: Path, plan: Plan | None = None, *,
    pods: Callable[[Path, str, S3Store, str], PodDriver] = PodDriver,
) -> Iterator[Bench]:  # fmt: skip
    """Makes a namespace, a bucket, a healthy node, moving pods, and an operator that the test starts.

    With a plan (perhaps one without faults) the operator speaks through a fault proxy.
    """
    name = f"t{secrets.token_hex(4)}"
    plane.start_apiserver()
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    Api(plane.kubeconfig).call("POST", "/api/v1/namespaces", namespace)
    add_node(plane, name)
    minio.admin().make_bucket(name)
    store = S3Store(minio.target(name))
    with contextlib.ExitStack() as stack:
        proxy = stack.enter_context(FaultProxy(plane.kubeconfig, folder, plan)) if plan is not None else None
        kubeconfig = proxy.kubeconfig if proxy else plane.kubeconfig
        operator = OperatorProcess(kubeconfig, folder / "operator", name, minio.endpoint, name)
        stack.enter_context(operator)
        driver = stack.enter_context(pods(plane.kubeconfig, name, store, name))
        yield Bench(plane, minio, name, store, driver, operator, proxy)


def add_node(plane: ControlPlane, name: str) -> None:
    """Makes a node that is Ready."""
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    Api(plane.kubeconfig).call("POST", "/api/v1/nodes", body)
    set_node_ready(plane, name, ready=True)


def set_node_ready(plane: ControlPlane, node: str, *, ready: bool) -> None:
    """Writes a node's Ready condition, as its kubelet or the node controller would."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "Ready", "status": str(ready), "reason": "Test", "message": "", "lastTransitionTime": now,
                 "lastHeartbeatTime": now}  # fmt: skip
    Api(plane.kubeconfig).call("PATCH", f"/api/v1/nodes/{node}/status", {"status": {"conditions": [condition]}})


def kubeconfig_of(bench: Bench, account: str, path: Path) -> Path:
    """Writes a kubeconfig of a service account, as a pod would have it."""
    document = yaml.safe_load(bench.plane.kubeconfig.read_text())
    token = bench.kubectl("create", "token", account).strip()
    document["users"][0]["user"] = {"token": token}
    path.write_text(json.dumps(document))
    return path
