"""The two operators as they are started, asked and counted; nothing here measures.

Each is a process of its own with its program's default settings. Ours finds a DatasetCache that is Ready; theirs finds
the Secret and the webhook configuration that its certificate rotator insists on, the latter without webhooks: the
API server of the bench has no way to a webhook's Service.
"""

import base64
import json
import os
import subprocess
import sys
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Any

import urllib3

from bench.operator.cluster import BENCH_NODE, LIFE_SPACE, SPACE, BenchCluster
from lead_protocol.store.s3 import S3Store
from lead_testing.local_cluster.api_server import no_proxy_environment
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.minio_server import ROOT_PASSWORD, ROOT_USER
from lead_testing.operator_process import OPEN_POLICY, TRAINER_IMAGE, wait_for
from lead_testing.pod_driver import ApiRefused, PodDriver
from lead_testing.ports import free_port, free_ports

CACHE = "town"
STAGE = "pretrain"
# Fixed in the program, so one bench at a time on a machine.
THEIR_CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")
THEIR_NAMESPACE, THEIR_SECRET = "kubeflow", "training-operator-webhook-cert"
RETRYABLE = 137  # killed by SIGKILL: theirs replaces the pod, ours the group
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class System(ABC):
    """One operator under test."""

    def __init__(self, cluster: BenchCluster, folder: Path, name: str, user: str) -> None:
        self.name = name
        self.user = user
        self.log = folder / f"{user}.log"
        self.kubeconfig = cluster.kubeconfig_of(user)
        self._cluster = cluster
        self._process: subprocess.Popen[bytes] | None = None
        self._page = ""

    @property
    @abstractmethod
    def resource(self) -> str:
        """The plural of its runs."""

    @abstractmethod
    def path(self, namespace: str) -> str:
        """Where its runs are created."""

    @abstractmethod
    def a_run(self, name: str, nodes: int) -> dict[str, Any]:
        """A run of `nodes` pods."""

    @abstractmethod
    def pods_after_failure(self, nodes: int) -> int:
        """How many pods it makes anew after one has failed."""

    @abstractmethod
    def start(self, namespace: str) -> None:
        """Starts its process for runs in a namespace; does not wait."""

    @abstractmethod
    def has_looked_at(self, runs: int) -> bool:
        """Tells, by its own metrics, whether it has reconciled so many runs since its start and has no more to do."""

    def has_read_progress(self, runs: int) -> bool:
        """Tells whether it has read from so many runs how far they are; one that reads nothing has read all."""
        return True

    @abstractmethod
    def begin_training(self, pods: list[dict[str, Any]]) -> None:
        """Does what the programs in running pods do that the operator reads."""

    def ready(self) -> bool:
        """Tells whether its metrics can be read."""
        return bool(self.metrics())

    def stop(self) -> None:
        """Kills it as kill -9 does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def rss_mib(self) -> float:
        """Resident memory."""
        lines = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024

    @property
    def cpu_s(self) -> float:
        """CPU time used since its start."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def metrics(self) -> list[str]:
        """Returns the lines of its metrics page; none while nobody answers."""
        try:
            return urllib3.request("GET", self._page, timeout=10.0, retries=False).data.decode().splitlines()
        except urllib3.exceptions.HTTPError:
            return []

    def metric(self, name: str, label: str) -> float:
        """Returns the sum of a metric's samples that hold a label."""
        lines = [line for line in self.metrics() if line.startswith((f"{name}{{", f"{name} ")) and label in line]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    @property
    def _pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _launch(self, words: list[str | Path], environment: dict[str, str], page: str) -> None:
        assert self._process is None, f"{self.name} runs already"
        self._page = page
        environment = {**no_proxy_environment(), "KUBECONFIG": str(self.kubeconfig), **environment}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # images hold compiled bytecode
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(words, stdout=log, stderr=log, env=environment, start_new_session=True)


class Ours(System):
    """The project's operator, as its image starts it."""

    def __init__(self, cluster: BenchCluster, folder: Path) -> None:
        super().__init__(cluster, folder, "ours", "lead-operator")
        self._folder = folder / "ours"
        self._port = free_port()
        keys = self._folder / "credentials" / "default"
        keys.mkdir(parents=True)
        (keys / "access-key").write_text(ROOT_USER)
        (keys / "secret-key").write_text(ROOT_PASSWORD)
        profile = {"endpoint": cluster.minio.endpoint, "bucket": "bench", "secure": False}
        (self._folder / "profiles.json").write_text(json.dumps({"default": {**profile, "shared": ["datasets/"]}}))
        cluster.minio.admin().make_bucket("bench")
        self._store = S3Store(cluster.minio.target("bench"))
        self._trainer = self.pod_driver(SPACE)
        for namespace in (SPACE, LIFE_SPACE):
            self._build_cache(namespace)

    @property
    def resource(self) -> str:
        return "trainingruns"

    def path(self, namespace: str) -> str:
        return f"/apis/lead.dev/v1alpha1/namespaces/{namespace}/trainingruns"

    def a_run(self, name: str, nodes: int) -> dict[str, Any]:
        return a_training_run(name, CACHE, nodes=nodes)

    def pods_after_failure(self, nodes: int) -> int:
        return nodes  # the whole group: the others would wait for the lost one for ever

    def start(self, namespace: str) -> None:
        environment = {
            "HOSTNAME": "lead-operator-0",
            "LEAD_TRAINER_IMAGE": TRAINER_IMAGE,
            "LEAD_STORAGE_PROFILES_FILE": str(self._folder / "profiles.json"),
            "LEAD_OPERATOR_CREDENTIALS_DIR": str(self._folder / "credentials"),
            "LEAD_RUN_NAMESPACES": namespace,
            "LEAD_RELEASE_NAMESPACE": namespace,
            "LEAD_HEALTH_PORT": str(self._port),
            "LEAD_METRICS_AUTHENTICATION": "None",
            "LEAD_POLICY": OPEN_POLICY,
        }
        page = f"http://127.0.0.1:{self._port}/metrics"
        self._launch([sys.executable, "-m", "lead_operator", "run"], environment, page)

    def ready(self) -> bool:
        return self.metric("lead_leader", "") == 1

    def has_looked_at(self, runs: int) -> bool:
        looks = self.metric("lead_reconcile_duration_seconds_count", 'kind="TrainingRun"')
        return looks >= runs and self.metric("lead_work_queue_depth", "") == 0

    def has_read_progress(self, runs: int) -> bool:
        return self.metric("lead_store_read_duration_seconds_count", 'result="ok"') >= runs

    def begin_training(self, pods: list[dict[str, Any]]) -> None:
        for pod in pods:
            if pod["metadata"]["labels"]["lead.dev/rank"] == "0":
                self._trainer.begin_training(pod)

    def pod_driver(self, namespace: str) -> PodDriver:
        """Returns who plays kubelet and trainer for all pods of a namespace while it is entered."""
        return PodDriver(self._cluster.plane.kubeconfig, namespace, self._store, BENCH_NODE)

    def _build_cache(self, namespace: str) -> None:
        path = f"/apis/lead.dev/v1alpha1/namespaces/{namespace}/datasetcaches"
        self._cluster.api.call("POST", path, a_dataset_cache(CACHE, "datasets/town"))
        self.start(namespace)
        with self.pod_driver(namespace):
            wait_for("the cache to be Ready", lambda: self._phase(f"{path}/{CACHE}") == "Ready", within_s=120)
        self.stop()

    def _phase(self, path: str) -> str:
        phase: str = self._cluster.api.call("GET", path).get("status", {}).get("phase", "")
        return phase


class Theirs(System):
    """kubeflow's training-operator."""

    def __init__(self, cluster: BenchCluster, folder: Path, threads: int | None = None) -> None:
        """Takes the program's default number of threads, which is 1, where none is given."""
        name = "v1.8.1" if threads is None else f"v1.8.1, {threads} threads"
        super().__init__(cluster, folder, name, "training-operator" + ("" if threads is None else f"-{threads}"))
        self._flags = [] if threads is None else [f"--controller-threads={threads}"]
        self._ports = free_ports(3)
        for path, body in (
            ("/api/v1/namespaces", {"metadata": {"name": THEIR_NAMESPACE}}),
            (f"/api/v1/namespaces/{THEIR_NAMESPACE}/secrets", {"metadata": {"name": THEIR_SECRET}}),
            ("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
             {"metadata": {"name": "validator.training-operator.kubeflow.org"}}),
        ):  # fmt: skip
            with suppress(ApiRefused):  # made for another variant
                cluster.api.call("POST", path, body)

    @property
    def resource(self) -> str:
        return "pytorchjobs"

    def path(self, namespace: str) -> str:
        return f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs"

    def a_run(self, name: str, nodes: int) -> dict[str, Any]:
        resources = {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "3Gi"}}
        container = {"name": "pytorch", "image": TRAINER_IMAGE, "args": ["pod"], "resources": resources}
        # ExitCode is the only policy under which a failed pod is replaced.
        replica = {"restartPolicy": "ExitCode", "template": {"spec": {"containers": [container]}}}
        specs = {"Master": {**replica, "replicas": 1}, "Worker": {**replica, "replicas": nodes - 1}}
        return {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": name},
            "spec": {"pytorchReplicaSpecs": specs},
        }

    def pods_after_failure(self, nodes: int) -> int:
        return 1

    def begin_training(self, pods: list[dict[str, Any]]) -> None:
        """Nothing: it knows pods only."""

    def start(self, namespace: str) -> None:
        metrics, probes, webhook = self._ports
        words: list[str | Path] = [self._cluster.programs["training-operator"], "--enable-scheme=pytorchjob"]
        words += [f"--metrics-bind-address=127.0.0.1:{metrics}", f"--health-probe-bind-address=127.0.0.1:{probes}"]
        words += [f"--webhook-server-port={webhook}", *self._flags]
        self._launch(words, {"MY_POD_NAMESPACE": THEIR_NAMESPACE}, f"http://127.0.0.1:{metrics}/metrics")
        if not THEIR_CERTIFICATES.exists() or self._certificates() != {
            file.name: file.read_bytes() for file in THEIR_CERTIFICATES.iterdir()
        }:
            self._mount_certificates()

    def ready(self) -> bool:
        return any('controller="pytorchjob-controller"' in line for line in self.metrics())

    def has_looked_at(self, runs: int) -> bool:
        looks = self.metric("controller_runtime_reconcile_total", 'controller="pytorchjob-controller"')
        return looks >= runs and self.metric("workqueue_depth", 'name="pytorchjob-controller"') == 0

    def _mount_certificates(self) -> None:
        """Does what a kubelet does with the Secret's volume, as soon as the operator has filled it."""
        wait_for("training-operator to fill its Secret", self._certificates, within_s=60)
        THEIR_CERTIFICATES.mkdir(parents=True, exist_ok=True)
        for name, data in self._certificates().items():
            (THEIR_CERTIFICATES / name).write_bytes(data)

    def _certificates(self) -> dict[str, bytes]:
        path = f"/api/v1/namespaces/{THEIR_NAMESPACE}/secrets/{THEIR_SECRET}"
        data = self._cluster.api.call("GET", path).get("data", {})
        return {name: base64.b64decode(value) for name, value in data.items()}


def all_systems(cluster: BenchCluster, folder: Path) -> dict[str, System]:
    """Returns every system by its short name on the command line."""
    return {
        "ours": Ours(cluster, folder),
        "theirs": Theirs(cluster, folder),
        "theirs-10": Theirs(cluster, folder, threads=10),
    }
