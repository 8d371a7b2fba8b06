"""The chart as a user has it installed in one namespace, and the few things a cluster test does to it."""

import base64
import contextlib
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from lead_protocol.environment import STORE_ENDPOINT, STORE_URL
from lead_protocol.store.object_store import ObjectStore
from lead_protocol.store.open_store import open_store
from lead_testing import PROJECT_ROOT
from lead_testing.local_cluster import Cluster
from lead_testing.local_cluster.images import repository_and_tag

Seen = TypeVar("Seen")


@dataclass(frozen=True)
class Installed:
    """A release of the chart in `namespace` of `cluster`."""

    cluster: Cluster
    namespace: str

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Runs kubectl or helm (the first argument) in the namespace, without judging its exit status."""
        return subprocess.run(
            self._command(*arguments), env=self.cluster.environment(), input=stdin, capture_output=True, text=True,
            check=False, cwd=PROJECT_ROOT,
        )  # fmt: skip

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Runs kubectl in the namespace and returns what it printed; fails with its stderr."""
        done = self.run("kubectl", *arguments, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def read(self, *arguments: str) -> str:
        """Returns what kubectl prints where nothing is changed; a server that is busy for a moment is asked again."""
        for _ in range(4):
            done = self.run("kubectl", *arguments)
            if done.returncode == 0:
                return done.stdout
            time.sleep(1)
        return self.kubectl(*arguments)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Returns one object, or an empty dict when it does not exist."""
        text = self.read("get", kind, name, "-o", "json", "--ignore-not-found")
        return json.loads(text) if text.strip() else {}

    def items(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        """Returns every object of a kind in the namespace."""
        listing = json.loads(self.read("get", kind, "-o", "json", *(["-l", selector] if selector else [])))
        return list(listing["items"])

    def apply(self, *objects: dict[str, Any]) -> None:
        """Applies objects as `kubectl apply -f -` does."""
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def apply_anew(self, manifest: dict[str, Any]) -> None:
        """Applies an object that a try of the same test before may have left, without what it had come to."""
        self.kubectl("delete", manifest["kind"], manifest["metadata"]["name"], "--ignore-not-found", "--wait")
        self.apply(manifest)

    def token(self, account: str) -> str:
        """Returns a token of a service account, which exists afterwards."""
        self.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}})
        return self.read("create", "token", account).strip()

    def grant(self, account: str, role: str) -> None:
        """Gives a service account one of Kubernetes' own roles in the namespace."""
        rbac = "rbac.authorization.k8s.io"
        self.apply({
            "apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": {"name": account},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": self.namespace}],
        })  # fmt: skip

    def status(self, kind: str, name: str) -> dict[str, Any]:
        """Returns an object's status, empty while it has none."""
        return dict(self.get(kind, name).get("status", {}))

    def wait_for(self, what: str, look: Callable[[], Seen | None], deadline_s: float = 300) -> Seen:
        """Returns the first thing `look` sees that is truthy; fails after the deadline with the namespace's state."""
        deadline = time.monotonic() + deadline_s
        while True:
            seen = look()
            if seen:
                return seen
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {deadline_s:.0f} s for {what}\n{self.describe_everything()}")
            time.sleep(0.5)

    def wait_for_phase(self, kind: str, name: str, *phases: str, deadline_s: float = 300) -> dict[str, Any]:
        """Waits until the object's phase is one of `phases` and returns its status; ends early when it is Failed."""

        def look() -> dict[str, Any] | None:
            status = self.status(kind, name)
            reached = status.get("phase") in phases
            assert reached or status.get("phase") != "Failed", f"{kind} {name} is Failed: {conditions(status)}"
            return status if reached else None

        return self.wait_for(f"{kind} {name} to be {' or '.join(phases)}", look, deadline_s)

    def describe_everything(self) -> str:
        """Returns what a person would look at first: resources, pods, events, the logs' last lines."""
        parts = [self.run("kubectl", "get", "datasetcaches,trainingruns,pods,jobs,pvc", "-o", "wide").stdout]
        parts.append(
            self.run(
                "kubectl", "get", "trainingruns,datasetcaches", "-o", "yaml", "--show-managed-fields=false"
            ).stdout[-6000:]
        )
        parts.append(self.run("kubectl", "get", "events", "--sort-by=.lastTimestamp").stdout[-4000:])
        parts.append(self.run("kubectl", "logs", "deploy/lead-operator", "--tail=60").stdout[-6000:])
        for pod in self.run("kubectl", "get", "pods", "-l", "lead.dev/role", "-o", "name").stdout.split()[-4:]:
            parts.append(f"--- {pod}\n{self.run('kubectl', 'logs', pod, '--tail=25').stdout[-3000:]}")
        return "\n".join(parts)

    @contextlib.contextmanager
    def store(self) -> Iterator[ObjectStore]:
        """Opens the embedded object store through a port-forward, with the root credentials of its Secret."""
        with self.store_environment() as environment:
            yield open_store({STORE_URL: "s3://lead", **environment})

    @contextlib.contextmanager
    def store_environment(self) -> Iterator[dict[str, str]]:
        """Yields what a process on this machine needs to reach the embedded store as its root user."""
        authority = self.get("configmap", "lead-store-ca-default")["data"]["ca.crt"]
        user, password = self.root_credentials()
        with tempfile.TemporaryDirectory() as folder, self.port_forward("svc/lead-minio", 9000) as port:
            (file := Path(folder) / "ca.crt").write_text(authority)
            yield {
                STORE_ENDPOINT: f"127.0.0.1:{port}",
                "AWS_CA_BUNDLE": str(file),
                "AWS_ACCESS_KEY_ID": user,
                "AWS_SECRET_ACCESS_KEY": password,
            }

    def root_credentials(self) -> tuple[str, str]:
        """Returns user and password of the embedded object store."""
        data = self.get("secret", "lead-minio-credentials")["data"]
        user, password = (base64.b64decode(data[key]).decode() for key in ("root-user", "root-password"))
        return user, password

    @contextlib.contextmanager
    def port_forward(self, target: str, port: int) -> Iterator[int]:
        """Yields a loopback port that leads to `target`'s `port`, once it has a pod that is ready."""
        opened: list[subprocess.Popen[str]] = []

        def look() -> int:
            opened.append(
                subprocess.Popen(
                    self._command("kubectl", "port-forward", target, f":{port}"), env=self.cluster.environment(),
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                )
            )  # fmt: skip
            output = opened[-1].stdout
            assert output is not None
            found = re.search(r"127\.0\.0\.1:(\d+)", output.readline())
            return int(found.group(1)) if found else 0

        try:
            yield self.wait_for(f"kubectl port-forward {target}", look, deadline_s=120)
        finally:
            for process in opened:
                process.terminate()
                process.wait()

    def _command(self, name: str, *arguments: str) -> list[str]:
        """Returns the command line of kubectl or helm: the cluster's own where it has one."""
        binary = self.cluster.bin_dir / name
        return [str(binary) if binary.exists() else name, "--namespace", self.namespace, *arguments]


def fresh_namespace(cluster: Cluster, namespace: str) -> Installed:
    """Makes a namespace that enforces the restricted profile and brings the CRDs up to date; installs nothing yet."""
    release = Installed(cluster, namespace)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    release.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}})
    release.kubectl(
        "apply", "--server-side", "--force-conflicts", "-f", "crds/trainingrun.yaml", "-f", "crds/datasetcache.yaml"
    )
    return release


FOR_TESTS = (
    "operator.progressSeconds=2",  # a status is young when a test acts on it
    "policy.allowedStorageClasses={lead-local}",
    "policy.allowedImages={*}",
)


def helm(release: Installed, verb: str, images: dict[str, str], *settings: str) -> None:
    """Runs `helm install` or `helm upgrade` of the checkout's chart and waits until everything is ready."""
    values = [
        f"images.{name}.{key}={value}"
        for name, reference in images.items()
        for key, value in zip(("repository", "tag"), repository_and_tag(reference), strict=True)
    ]
    done = release.run(
        "helm",
        verb,
        "lead",
        str(PROJECT_ROOT / "charts/lead"),
        "--set",
        ",".join([*values, *FOR_TESTS, *settings]),
        "--wait",
        "--wait-for-jobs",
        "--timeout",
        "300s",
    )
    assert done.returncode == 0, f"helm {verb}: {done.stderr}\n{release.describe_everything()}"


def uninstall(release: Installed) -> None:
    """Deletes the runs and the release; the namespace, with everything in it, goes while the next test begins."""
    release.run("kubectl", "delete", "trainingruns,datasetcaches", "--all", "--wait", "--timeout=60s")
    release.run("helm", "uninstall", "lead", "--wait", "--timeout", "120s")
    release.run("kubectl", "delete", "namespace", release.namespace, "--wait=false")


def upload_tree(store: ObjectStore, root: Path, prefix: str) -> None:
    """Copies every file below `root` into the store below `prefix`."""
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        store.put(f"{prefix}/{path.relative_to(root).as_posix()}", path.read_bytes())


def conditions(status: dict[str, Any]) -> dict[str, str]:
    """Returns a status's conditions as `type: status reason: message`."""
    return {c["type"]: f"{c['status']} {c['reason']}: {c['message']}" for c in status.get("conditions", [])}
