"""All watches of one operator process, and which event requests a pass over which resource.

Built by `controllers.manager`. Every arrow from an event to a key stands here: a pod, service or claim asks for its
owner, a node for those with pods on it, a cache for the runs that wait for it, a run for the caches it uses.
"""

import asyncio
from collections.abc import Callable, Iterator

from lead_operator import names
from lead_operator.kube.client import KubeClient, Trim
from lead_operator.kube.copies import (
    NodeWatch,
    caches_of,
    condition,
    has_ended,
    is_finished,
    trim_child,
    trim_node,
    trim_pod,
)
from lead_operator.kube.copy_budget import CopyBudget
from lead_operator.kube.fed_informer import FedInformer
from lead_operator.kube.informer import Informer, ObjectKey, drop_managed_fields
from lead_operator.kube.kinds import (
    CLAIM,
    CUSTOM_KINDS,
    DATASET_CACHE,
    NODE,
    POD,
    SERVICE,
    TRAINING_RUN,
    Kind,
    KubernetesObject,
    ResourceKey,
    key_of,
    owner_of,
)
from lead_operator.kube.observe import observe_cache
from lead_operator.settings import Settings

SYNC_CHECK_S = 0.05
_NAMESPACED = (TRAINING_RUN, DATASET_CACHE, POD, SERVICE, CLAIM)

Enqueue = Callable[[ResourceKey], None]
Body = KubernetesObject | None


class Informers:
    """The informers of every kind in every namespace where runs may live."""

    def __init__(
        self,
        client: KubeClient,
        namespaces: tuple[str, ...],
        settings: Settings,
        enqueue: Enqueue,
        enqueue_soon: Enqueue,
        budget: CopyBudget | None = None,
    ) -> None:
        self._client = client
        self._namespaces = namespaces
        self._settings = settings
        self._enqueue = enqueue
        self._enqueue_soon = enqueue_soon
        self._budget = budget or CopyBudget()
        self._late = set[ResourceKey]()  # of namespaces that are not seen whole
        self._by_kind = {
            TRAINING_RUN.kind: self._informers(TRAINING_RUN, self._on_run),
            DATASET_CACHE.kind: self._informers(DATASET_CACHE, self._on_cache),
            POD.kind: self._informers(POD, self._on_child, names.MANAGED_SELECTOR, trim_pod),
            SERVICE.kind: self._informers(SERVICE, self._on_child, names.MANAGED_SELECTOR, trim_child),
            CLAIM.kind: self._informers(CLAIM, self._on_child, names.MANAGED_SELECTOR, trim_child),
        }
        fed = (each for each in self.vital if isinstance(each, FedInformer))
        self._by_path = {informer.kind.path(informer.namespace): informer for informer in fed}
        self.nodes = NodeWatch(self._informer(NODE, "", self._on_node, "", trim_node))

    @property
    def vital(self) -> list[Informer]:
        """The informers without which nothing may be decided."""
        return [informer for informers in self._by_kind.values() for informer in informers.values()]

    def of(self, kind: Kind, namespace: str) -> Informer:
        """Returns the informer of a kind that sees one of the namespaces for runs."""
        found = self.find(kind, namespace)
        assert found is not None, f"{namespace} is no namespace for runs"
        return found

    def find(self, kind: Kind, namespace: str) -> Informer | None:
        """Returns the informer of a kind that sees a namespace, or None where runs may not live there."""
        informers = self._by_kind[kind.kind]
        return informers.get(namespace) or informers.get("")

    def fed(self, kind: Kind, namespace: str) -> FedInformer | None:
        """Returns the informer that events of kopf's watch go to."""
        informer = self.find(kind, namespace)
        return informer if isinstance(informer, FedInformer) else None

    def fed_at(self, path: str) -> FedInformer | None:
        """Returns the informer of the collection at a URL path, where events of kopf's watch go to it."""
        return self._by_path.get(path)

    def resources(self) -> Iterator[ResourceKey]:
        """Yields the key of every custom resource there is."""
        for kind in (TRAINING_RUN, DATASET_CACHE):
            for body in self.all(kind):
                yield key_of(body, kind)

    def all(self, kind: Kind) -> Iterator[KubernetesObject]:
        """Yields every object of a kind."""
        for informer in self._by_kind[kind.kind].values():
            yield from informer.all()

    def users_of(self, namespace: str, cache: str) -> Iterator[KubernetesObject]:
        """Yields every unfinished TrainingRun that references a DatasetCache."""
        for run in self.of(TRAINING_RUN, namespace).all():
            if run["metadata"]["namespace"] == namespace and cache in caches_of(run) and not is_finished(run):
                yield run

    def serves(self, namespace: str) -> bool:
        """Returns whether every kind of a namespace is seen: decisions must not be based on a partial snapshot."""
        seen = [self.find(kind, namespace) for kind in _NAMESPACED]
        return all(informer is not None and informer.synced.is_set() and not informer.refused for informer in seen)

    def request_when_served(self, key: ResourceKey) -> None:
        """Requests a pass over a resource as soon as its namespace is synced."""
        self._late.add(key)

    @property
    def not_seen(self) -> list[str]:
        """The namespaces that are not fully synced now: their copies may be stale."""
        return [namespace for namespace in self._namespaces if not self.serves(namespace)]

    @property
    def refused(self) -> dict[str, str]:
        """The namespaces that the server does not show, and why."""
        return {informer.namespace: informer.refused for informer in reversed(self.vital) if informer.refused}

    @property
    def unserved(self) -> dict[str, str]:
        """The refused namespaces that the process goes on without; none where the server shows not a single one."""
        return self.refused if any(self.serves(namespace) for namespace in self._namespaces) else {}

    @property
    def awaited(self) -> list[Informer]:
        """The vital informers of the namespaces that are served: those that must not be silent."""
        unserved = self.unserved
        return [informer for informer in self.vital if informer.namespace not in unserved]

    async def synced(self) -> None:
        """Waits until one namespace is seen whole.

        The others are served as soon as they are: none waits for the lists of another, however much lies there.
        """
        while not any(self.serves(namespace) for namespace in self._namespaces):
            await asyncio.sleep(SYNC_CHECK_S)

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Runs every informer in the group."""
        for informer in [*self.vital, self.nodes.informer]:
            tasks.create_task(informer.run(), name=f"informer {informer.name}")

    def _informers(
        self, kind: Kind, on_change: Callable[[Body, Body], None], selector: str = "", trim: Trim = drop_managed_fields
    ) -> dict[str, Informer]:
        return {namespace: self._informer(kind, namespace, on_change, selector, trim) for namespace in self._namespaces}

    def _informer(
        self, kind: Kind, namespace: str, on_change: Callable[[Body, Body], None], selector: str, trim: Trim
    ) -> Informer:
        make = FedInformer if kind in CUSTOM_KINDS else Informer
        return make(
            self._client,
            kind,
            namespace,
            selector=selector,
            watch_s=self._settings.resync_s,
            relist_s=self._settings.relist_s,
            trim=trim,
            on_change=on_change,
            on_size=(lambda key, size: self._note_size(kind, key, size)) if kind in CUSTOM_KINDS else None,
            on_seen=self._request_late,
        )

    def _request_late(self) -> None:
        for key in [key for key in self._late if self.serves(key.namespace)]:
            self._late.remove(key)
            self._enqueue(key)

    def _note_size(self, kind: Kind, key: ObjectKey, size: int) -> None:
        for to_cut in self._budget.note((kind.kind, *key), size):
            held_kind, namespace, name = to_cut
            self._budget.note(to_cut, 0)
            informer = self._by_kind[held_kind].get(namespace) or self._by_kind[held_kind][""]
            informer.cut((namespace, name))

    def _on_run(self, before: Body, after: Body) -> None:
        body = after or before
        assert body is not None
        self._enqueue(key_of(body, TRAINING_RUN))
        used_before = before is not None and not is_finished(before)
        used_after = after is not None and not is_finished(after)
        if used_before != used_after:
            for cache in caches_of(body):
                self._enqueue(ResourceKey(DATASET_CACHE.kind, body["metadata"]["namespace"], cache))

    def _on_cache(self, before: Body, after: Body) -> None:
        body = after or before
        assert body is not None
        self._enqueue(key_of(body, DATASET_CACHE))
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        if observe_cache(name, before) == observe_cache(name, after):
            return
        for run in self.users_of(namespace, name):
            self._enqueue(key_of(run, TRAINING_RUN))

    def _on_child(self, before: Body, after: Body) -> None:
        body = after or before
        assert body is not None
        owner = owner_of(body)
        if owner is not None and owner["kind"] in (TRAINING_RUN.kind, DATASET_CACHE.kind):
            # Pods of a group start together and one pass for all of them is enough; an end is handled now.
            enqueue = self._enqueue if after is None or has_ended(after) else self._enqueue_soon
            enqueue(ResourceKey(owner["kind"], body["metadata"]["namespace"], owner["name"]))

    def _on_node(self, before: Body, after: Body) -> None:
        if before is not None and after is not None and _ready(before) == _ready(after):
            return
        body = after or before
        assert body is not None
        if before is None:
            self.nodes.returned(body["metadata"]["name"])
        for pod in self.all(POD):
            if pod["spec"]["nodeName"] == body["metadata"]["name"]:
                self._on_child(None, pod)


def _ready(node: KubernetesObject) -> str:
    status: str = condition(node, "Ready").get("status", "")
    return status
