"""`Cluster()`: the same calls as `Local()`, against a Kubernetes cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from lead_client.cache import Cache
from lead_client.checkpoints import Instance
from lead_client.cluster.api import Api
from lead_client.cluster.bucket import Bucket
from lead_client.errors import NotFound
from lead_client.objects.dataset_cache_status import DatasetCacheStatus
from lead_client.objects.manifests import DatasetCache, Manifest, TrainingRun
from lead_client.objects.training_run_status import TrainingRunStatus
from lead_client.run import Run
from lead_protocol.object_keys import InstanceKeys

RUN_LABEL = "lead.dev/run"  # of a run's pods; a test compares it with the operator's


class Cluster:
    """A cluster and a namespace, by a kubeconfig or by the pod that this runs in; makes no request by itself.

    The default is the current context and its namespace. `store` is for a bucket that cannot be found by itself: the
    variables that `lead export` reads, such as LEAD_STORE_URL; those of this process are taken where LEAD_STORE_URL is
    set. Calls raise NotAllowed where this user's rights do not suffice, and Unavailable where nobody answers.
    """

    def __init__(self, namespace: str | None = None, *, kubeconfig: str | None = None, context: str | None = None,
                 store: Mapping[str, str] | None = None) -> None:  # fmt: skip
        self._api = Api(kubeconfig, context)
        self.namespace = namespace or self._api.namespace
        self._bucket = Bucket(self._api, store)

    @overload
    def submit(self, manifest: TrainingRun) -> ClusterRun: ...

    @overload
    def submit(self, manifest: DatasetCache) -> ClusterCache: ...

    @overload
    def submit(self, manifest: Manifest) -> ClusterRun | ClusterCache: ...

    def submit(self, manifest: Manifest) -> ClusterRun | ClusterCache:
        """Applies a manifest, as `kubectl apply --server-side` does; the same one again changes nothing.

        Raises InvalidObject with the API server's message where it breaks a limit or a rule of the CRD or of the
        administrator's policy, AlreadyExists where another tool set a field that this manifest changes.
        """
        namespace = manifest.namespace or self.namespace
        self._api.apply(manifest, namespace)
        kind = ClusterRun if isinstance(manifest, TrainingRun) else ClusterCache
        return kind(self._api, self._bucket, namespace, manifest.name)

    def get(self, name: str) -> ClusterRun:
        """Returns the TrainingRun of this name; raises NotFound."""
        self._api.get(TrainingRun.plural, self.namespace, name)
        return ClusterRun(self._api, self._bucket, self.namespace, name)

    def cache(self, name: str) -> ClusterCache:
        """Returns the DatasetCache of this name; raises NotFound."""
        self._api.get(DatasetCache.plural, self.namespace, name)
        return ClusterCache(self._api, self._bucket, self.namespace, name)

    def list(self) -> Sequence[ClusterRun]:
        """Returns the TrainingRuns of the namespace, the oldest first."""
        found = self._api.items(TrainingRun.plural, self.namespace)
        found = sorted(found, key=lambda each: each["metadata"]["creationTimestamp"])
        return [ClusterRun(self._api, self._bucket, self.namespace, each["metadata"]["name"]) for each in found]


class _InCluster:
    """One object of a namespace."""

    plural = ""

    def __init__(self, api: Api, bucket: Bucket, namespace: str, name: str) -> None:
        self.name, self.namespace = name, namespace
        self._api, self._bucket = api, bucket

    def document(self) -> dict[str, Any]:
        """Returns the object as `kubectl get -o json` prints it."""
        return self._api.get(self.plural, self.namespace, self.name)

    def delete(self) -> None:
        """Deletes the object; checkpoints stay in the store, a cache as its `retain` has it."""
        self._api.delete(self.plural, self.namespace, self.name)

    def _documents(self, timeout: float | None) -> Iterator[dict[str, Any]]:
        deadline = None if timeout is None else time.monotonic() + timeout
        return self._api.changes(self.plural, self.namespace, self.name, deadline)


class ClusterRun(_InCluster, Run):
    """A TrainingRun of a cluster."""

    plural = TrainingRun.plural

    def status(self) -> TrainingRunStatus:
        """Returns the status as the operator reports it."""
        return TrainingRunStatus.model_validate(self.document().get("status") or {})

    def changes(self, timeout: float | None = None) -> Iterator[TrainingRunStatus]:
        """Yields the status now and after every change, through outages of the API server."""
        for document in self._documents(timeout):
            yield (status := TrainingRunStatus.model_validate(document.get("status") or {}))
            if status.phase in self.ended:
                return

    def suspend(self) -> None:
        """Sets `spec.suspend`: the pods commit a checkpoint and end."""
        self._api.patch_spec(self.plural, self.namespace, self.name, {"suspend": True})

    def resume(self) -> None:
        """Clears `spec.suspend`: new pods go on from the newest valid checkpoint."""
        self._api.patch_spec(self.plural, self.namespace, self.name, {"suspend": False})

    def scale(self, nodes: int) -> None:
        """Sets `spec.nodes`: see `Run.scale`."""
        self._api.patch_spec(self.plural, self.namespace, self.name, {"nodes": nodes})

    def logs(self) -> Iterator[str]:
        """Yields what the training pods have logged, oldest pod first, each line with its pod."""
        pods = self._api.pods(self.namespace, f"{RUN_LABEL}={self.name}")
        if not pods:
            self.document()  # NotFound, if that is why
            raise NotFound(f"TrainingRun {self.name} has no pod: none was created yet, or they were cleaned up")
        for pod in pods:
            containers = {each.name for each in pod.spec.containers}
            started = {each.name for each in pod.status.container_statuses or [] if each.state.waiting is None}
            for container in sorted(containers & started):
                for line in self._api.pod_log(self.namespace, pod.metadata.name, container).splitlines():
                    yield f"{pod.metadata.name}: {line}"

    def instances(self) -> Sequence[Instance]:
        """Returns each stage and seed that has begun, with its objects in the bucket."""
        document = self.document()
        status = TrainingRunStatus.model_validate(document.get("status") or {})
        begun = [each for each in status.stages or [] if each.attempt and each.name is not None]
        if not begun:
            return []
        profile = document["spec"].get("storageProfile") or "default"
        store = self._bucket.store(self.namespace, profile)
        uid = document["metadata"]["uid"]
        keys = [InstanceKeys(self.namespace, uid, str(each.name), each.seed or 0) for each in begun]
        return [Instance(each.stage, each.seed, store, each) for each in keys]


class ClusterCache(_InCluster, Cache):
    """A DatasetCache of a cluster."""

    plural = DatasetCache.plural

    def status(self) -> DatasetCacheStatus:
        """Returns the status as the operator reports it."""
        return DatasetCacheStatus.model_validate(self.document().get("status") or {})

    def changes(self, timeout: float | None = None) -> Iterator[DatasetCacheStatus]:
        """Yields the status now and after every change, through outages of the API server."""
        for document in self._documents(timeout):
            yield (status := DatasetCacheStatus.model_validate(document.get("status") or {}))
            if status.phase in self.ended:
                return
