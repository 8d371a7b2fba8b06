"""One API server for both operators: an audit log, nodes played by kwok, and nobody but the bench beside them.

There is no scheduler and no garbage collector: an admission policy gives each pod its node as it is created, and the
bench removes what it made. Both operators are members of the group of service accounts, as in a cluster: the API
server's priority-and-fairness treats them as it would there.
"""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import urllib3

from bench.operator.audit import POLICY, AuditLog
from lead_testing import PROJECT_ROOT
from lead_testing.api_bench import set_node_ready
from lead_testing.local_cluster.api_server import no_proxy_environment
from lead_testing.local_cluster.binaries import BENCH_PROGRAMS, SOURCES, ensure_programs, find_go
from lead_testing.local_cluster.control_plane import ControlPlane
from lead_testing.local_cluster.home import Home
from lead_testing.local_cluster.pki import Identity
from lead_testing.minio_server import MinioServer, minio_program
from lead_testing.operator_process import wait_for
from lead_testing.pod_driver import Api, ApiRefused

# kwok moves what is on its node at once: pods run, and go when they are deleted. What is on the other one the bench
# moves: pods that build caches, and all pods of the namespace in which runs live to their end.
KWOK_NODE, BENCH_NODE = "kwok", "bench"
SPACE, LIFE_SPACE = "many", "life"
SERVICE_ACCOUNTS = "system:serviceaccounts"
THEIR_MODULE = "github.com/kubeflow/training-operator"
CREATORS = 4  # connections that create runs; the API server takes them faster than either operator


class BenchCluster:
    """A context manager; inside it both kinds exist and nothing else runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self.programs = ensure_programs(Home.from_environment(), BENCH_PROGRAMS)
        policy = folder / "audit-policy.json"
        policy.write_text(json.dumps(POLICY))
        self.audit = AuditLog(folder / "audit.log")
        flags = (
            f"--audit-policy-file={policy}", f"--audit-log-path={self.audit.file}",
            "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
            "--feature-gates=MutatingAdmissionPolicy=true",
        )  # fmt: skip
        self.plane = ControlPlane(folder / "control-plane", flags=flags)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.plane)
            self.minio = stack.enter_context(MinioServer(minio_program(), self._folder / "minio"))
            self.api = Api(self.plane.kubeconfig)
            self._prepare()
            self._start_kwok(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def kubeconfig_of(self, user: str) -> Path:
        """Returns a kubeconfig of a service account with every right."""
        path = self.plane.kubeconfig_for(Identity(user, user, SERVICE_ACCOUNTS))
        with suppress(ApiRefused):  # bound already
            self.api.call("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {
                "metadata": {"name": user},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "User", "name": user}],
            })  # fmt: skip
        return path

    def create_all(self, path: str, bodies: list[dict[str, Any]]) -> None:
        """Creates objects as fast as a few connections can."""
        with ThreadPoolExecutor(CREATORS) as threads:
            list(threads.map(lambda body: self.api.call("POST", path, body), bodies))

    def fail_pods(self, pods: list[dict[str, Any]], code: int) -> None:
        """Writes what a kubelet writes when the container of a pod ends with `code`."""
        with ThreadPoolExecutor(CREATORS) as threads:
            list(threads.map(lambda pod: self.end_pod(pod, "Failed", code), pods))

    def end_pod(self, pod: dict[str, Any], phase: str, code: int) -> None:
        """Ends every container of one pod."""
        ended = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
        containers = [{**held, "ready": False, "state": ended} for held in pod["status"]["containerStatuses"]]
        body = {"status": {"phase": phase, "containerStatuses": containers}}
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        self.api.call("PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}/status", body)

    def pods(self, namespace: str = SPACE) -> list[dict[str, Any]]:
        """Returns the pods of runs."""
        found = self._items(f"/api/v1/namespaces/{namespace}/pods")
        return [pod for pod in found if pod["metadata"].get("labels", {}).get("lead.dev/role") != "build"]

    def clean(self, namespace: str = SPACE) -> None:
        """Removes all runs and what was made for them; caches stay."""
        paths = [f"/apis/lead.dev/v1alpha1/namespaces/{namespace}/trainingruns"]
        paths += [f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs"]
        paths += [f"/api/v1/namespaces/{namespace}/{kind}" for kind in ("pods", "events")]
        now = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}

        def empty() -> bool:  # children may be made while their owners go
            for path in paths:
                with suppress(urllib3.exceptions.TimeoutError):  # thousands take longer than a call may
                    self.api.call("DELETE", path, now)
            for service in self._items(f"/api/v1/namespaces/{namespace}/services"):
                with suppress(ApiRefused):  # services cannot be deleted as a collection by every server
                    self.api.call("DELETE", f"/api/v1/namespaces/{namespace}/services/{service['metadata']['name']}")
            return not any(self._items(f"{path}?limit=1") for path in paths[:3])

        wait_for("the namespace to be empty", empty, within_s=600, poll_s=0.5)

    def _items(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.api.call("GET", path)["items"]
        return found

    def _prepare(self) -> None:
        crds = [PROJECT_ROOT / "crds" / "trainingrun.yaml", PROJECT_ROOT / "crds" / "datasetcache.yaml"]
        crds.append(their_source() / "manifests/base/crds/kubeflow.org_pytorchjobs.yaml")
        for crd in crds:  # theirs is too large for a client's apply
            self.plane.kubectl("apply", "--server-side", "-f", str(crd))
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        wait_for("kinds to be served", lambda: all(_has(crd, "Established") for crd in self._items(definitions)))
        made: list[dict[str, Any]] = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in (SPACE, LIFE_SPACE)
        ]
        made += [
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": KWOK_NODE, "labels": {"played-by": "kwok"}}},
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": BENCH_NODE}},
            *_node_policy(),
        ]
        self.plane.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": made}))
        set_node_ready(self.plane, BENCH_NODE, ready=True)
        wait_for("pods to be given a node", self._gives_a_node)

    def _gives_a_node(self) -> bool:
        spec = {"containers": [{"name": "any", "image": "any"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "any"}, "spec": spec}
        stored = self.api.call("POST", f"/api/v1/namespaces/{SPACE}/pods?dryRun=All", pod)
        return bool(stored["spec"].get("nodeName") == KWOK_NODE)

    def _start_kwok(self, stack: ExitStack) -> None:
        words = [str(self.programs["kwok"]), f"--kubeconfig={self.kubeconfig_of('kwok')}", "--cidr=10.1.0.0/16",
                 "--manage-nodes-with-label-selector=played-by=kwok", "--node-lease-duration-seconds=0"]  # fmt: skip
        log = stack.enter_context((self._folder / "kwok.log").open("wb"))
        process = subprocess.Popen(words, stdout=log, stderr=log, env=no_proxy_environment(), start_new_session=True)
        stack.callback(process.wait)
        stack.callback(process.kill)
        wait_for("kwok to play its node", lambda: _has(self.api.call("GET", f"/api/v1/nodes/{KWOK_NODE}"), "Ready"))


def their_source() -> Path:
    """Returns where Go keeps the source of kubeflow's training-operator, which holds its CRDs."""
    module = SOURCES / "training-operator"
    words = [find_go(), "list", "-mod=mod", "-m", "-f", "{{.Dir}}", THEIR_MODULE]
    return Path(subprocess.run(words, cwd=module, check=True, capture_output=True, text=True).stdout.strip())


def _node_policy() -> list[dict[str, Any]]:
    labels, role = "object.metadata.labels", "'lead.dev/role'"
    builds = f"has({labels}) && {role} in {labels} && {labels}[{role}] == 'build'"
    node = f"request.namespace == '{LIFE_SPACE}' || ({builds}) ? '{BENCH_NODE}' : '{KWOK_NODE}'"
    patch = f"[JSONPatch{{op: 'add', path: '/spec/nodeName', value: {node}}}]"
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    kind = {"apiVersion": "admissionregistration.k8s.io/v1beta1", "metadata": {"name": "nodes"}}
    spec = {
        "matchConstraints": {"resourceRules": [pods]},
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    }
    return [
        {**kind, "kind": "MutatingAdmissionPolicy", "spec": spec},
        {**kind, "kind": "MutatingAdmissionPolicyBinding", "spec": {"policyName": "nodes"}},
    ]


def _has(body: dict[str, Any], condition: str) -> bool:
    conditions = body.get("status", {}).get("conditions") or []
    return any(held["type"] == condition and held["status"] == "True" for held in conditions)
