"""Keeps a copy of every object of one kind: LIST once, then WATCH after WATCH, each from where the last one ended.

Made and run by `controllers.manager`, read by `kube.observe`. It lists again where a watch did not end as agreed: the
version is too old, the connection broke, or nothing came past the agreed end. The copy is replaced whole then, so a
delete that no watch reported is corrected; a list also runs at long intervals, because watches prove nothing. In
a quiet cluster it makes no LIST. It never writes to the server.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import aclosing

import structlog

from lead_operator.kube.api_errors import ApiError, Gone, NotFound, Refused, Unreachable
from lead_operator.kube.client import KubeClient, Trim
from lead_operator.kube.copy_budget import cut
from lead_operator.kube.intern import share_strings
from lead_operator.kube.kinds import Kind, KubernetesObject
from lead_operator.kube.object_reader import SIZE

FIRST_PAUSE_S = 0.3
LONGEST_PAUSE_S = 15.0
FORBIDDEN = 403
FORBIDDEN_REMEDY = "run helm upgrade to make the namespace's Role again, or take it out of runs.namespaces"
NO_CRD_REMEDY = "helm upgrade does not restore CRDs: kubectl apply -f crds/trainingrun.yaml -f crds/datasetcache.yaml"
OWN_WRITE_GRACE_S = 20.0  # longer than a list takes: a page may be older than our own write

ObjectKey = tuple[str, str]  # namespace, name
Change = Callable[[KubernetesObject | None, KubernetesObject | None], None]  # before, after
SizeChange = Callable[[ObjectKey, int], None]  # bytes of a copy, 0 where there is none any more

log = structlog.get_logger(__name__)


class Informer:
    """The objects of one kind in one namespace ("" is all), as last seen."""

    def __init__(
        self,
        client: KubeClient,
        kind: Kind,
        namespace: str,
        *,
        selector: str = "",
        watch_s: float = 60.0,
        relist_s: float = 600.0,
        trim: Trim | None = None,
        on_change: Change | None = None,
        on_size: SizeChange | None = None,
        on_seen: Callable[[], None] | None = None,
        first_pause_s: float = FIRST_PAUSE_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_seen`: called when the first list is in, and when the server shows again what it had refused to."""
        self.now = now
        self.kind = kind
        self.namespace = namespace
        self.synced = asyncio.Event()
        self.last_sign_of_life = self.now()  # a list, an event or a bookmark arrived
        self.refused = ""  # why the server shows none of it: the namespace, or the right to see it, is gone
        self.last_unreachable = 0.0  # the server was asked and was not there: waiting is right
        self.seen_since: float | None = None  # since when it has not been cut off; None: the copies may be old
        self._first_pause_s = first_pause_s
        self._client = client
        self._selector = selector
        self._watch_s = watch_s
        self._relist_s = relist_s
        trimmed = trim or drop_managed_fields
        self._trim: Trim = lambda body: share_strings(trimmed(body))
        self._on_change = on_change or (lambda before, after: None)
        self._on_size = on_size or (lambda key, size: None)
        self._on_seen = on_seen or (lambda: None)
        self._objects: dict[ObjectKey, KubernetesObject] = {}
        self._by_owner: dict[tuple[str, str], set[ObjectKey]] = {}  # by namespace and UID
        self._own_writes: dict[ObjectKey, float] = {}
        self._unbroken_since: float | None = None  # what `seen_since` was last, and is again after a short break

    @property
    def name(self) -> str:
        """Names the watch in logs and metrics."""
        return f"{self.kind.plural}/{self.namespace}" if self.namespace else self.kind.plural

    def get(self, namespace: str, name: str) -> KubernetesObject | None:
        """Returns the copy of one object, or None."""
        return self._objects.get((namespace, name))

    def names(self, namespace: str) -> Iterator[str]:
        """Yields the names of the objects in a namespace; go through them before the next await."""
        return (name for where, name in self._objects if where == namespace)

    def all(self) -> Iterable[KubernetesObject]:
        """Returns every copy."""
        return self._objects.values()

    def owned_by(self, namespace: str, uid: str) -> list[KubernetesObject]:
        """Returns the objects of a namespace that name the resource of this UID as an owner.

        Whoever may write in another namespace can name any UID there; owners are of the same one.
        """
        return [self._objects[key] for key in sorted(self._by_owner.get((namespace, uid), ()))]

    def note_own_write(self, body: KubernetesObject, *, quiet: bool = False) -> None:
        """Takes the server's answer to a write of ours as an event, so that the next pass already sees it.

        `quiet`: the pass that wrote it expects it and has scheduled the next pass; nobody is notified.
        """
        key = key_of_copy(body)
        self._own_writes[key] = self.now()
        self._store(key, self._trim(body), quiet=quiet)

    def forget(self, namespace: str, name: str) -> None:
        """Drops the copy of an object that a live read found gone."""
        self._remove((namespace, name))

    def cut(self, key: ObjectKey) -> None:
        """Keeps of a copy only what other resources need of it; no news to anybody."""
        if key in self._objects:
            self._objects[key] = cut(self._objects[key])

    async def run(self) -> None:
        """Lists and watches until cancelled; failures only lengthen the pause between tries."""
        failures = 0
        while True:
            try:
                await self._list_and_watch()
                failures = 0
            except Gone:
                failures, self.seen_since = 0, None
            except ApiError as error:
                failures, self.seen_since = failures + 1, None
                if isinstance(error, Unreachable):
                    self.last_unreachable = self.now()
                self._note_refusal(error)
                log.warning("watch_broken", watch=self.name, failures=failures, error=str(error))
                pause_s = min(LONGEST_PAUSE_S, self._first_pause_s * 2 ** min(failures, 10))
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))

    async def _list_and_watch(self) -> None:
        version = await self._list()
        # What one process asks for must not all come in the same second, nor for two kinds meet for ever.
        await self._follow(version, self._relist_s * random.uniform(0.8, 1.0))

    async def _list(self) -> str:
        """Replaces the copies by what a list holds; returns its version."""
        items, version = await self._client.list(self.kind, self.namespace, trim=self._trim, selector=self._selector)
        silent_s = self.now() - self.last_sign_of_life
        self._live()
        # A proxy may cut each watch that is quiet for a while. A whole one may be quiet for as long: that is no break.
        if self._unbroken_since is None or (self.seen_since is None and silent_s > self._watch_s):
            self._unbroken_since = self.last_sign_of_life
        self.seen_since = self._unbroken_since
        self._replace(items, version)
        unseen = not self.synced.is_set() or self.refused
        if self.refused:
            log.info("served_again", watch=self.name)
            self.refused = ""
        self.synced.set()
        if unseen:
            self._on_seen()
        return version

    async def _follow(self, version: str, lasts_s: float) -> None:
        """Takes what happens after a version, until the next list is due."""
        until = self.now() + lasts_s
        while (left_s := until - self.now()) > 0.5:
            version = await self._watch(version, min(left_s, self._watch_s * random.uniform(0.8, 1.0)))

    async def _watch(self, version: str, timeout_s: float) -> str:
        started = self.now()
        changes = self._client.watch(
            self.kind, self.namespace, selector=self._selector, resource_version=version, timeout_s=timeout_s
        )
        async with aclosing(changes):
            async for change, body in changes:
                self._live()
                version = body["metadata"]["resourceVersion"]
                if change != "BOOKMARK":
                    self._take_or_skip(change, body)
        if self.now() - started < 1:  # a server that ends watches at once must not be asked in a tight loop
            await asyncio.sleep(self._first_pause_s)
        return version

    def _note_refusal(self, error: ApiError) -> None:
        no_crd = isinstance(error, NotFound)  # of a namespace that is not there, everything is an empty list
        if not (no_crd or (isinstance(error, Refused) and error.status == FORBIDDEN)):
            return
        if not self.refused:
            remedy = NO_CRD_REMEDY if no_crd else FORBIDDEN_REMEDY
            log.error("not_served", watch=self.name, error=str(error), remedy=remedy)
        self.refused = str(error)

    def _live(self) -> None:
        self.last_sign_of_life = self.now()

    def _take_or_skip(self, change: str, body: KubernetesObject) -> None:
        try:
            self._take(change, body)
        except Exception as error:  # whatever one object holds, the others are seen
            log.exception("object_skipped", watch=self.name, name=str(body.get("metadata"))[:300], error=str(error))

    def _take(self, change: str, body: KubernetesObject) -> None:
        key = key_of_copy(body)
        if change == "DELETED":
            held = self._objects.get(key)
            if held is None or held["metadata"]["uid"] == body["metadata"]["uid"]:
                self._remove(key)
        else:
            self._store(key, self._trim(body))

    def _replace(self, items: list[KubernetesObject], version: str) -> None:
        listed = {key_of_copy(body): body for body in items}
        recent = self.now() - OWN_WRITE_GRACE_S
        self._own_writes = {key: at for key, at in self._own_writes.items() if at > recent}
        for key in [key for key in self._objects if key not in listed]:
            # A list may have been read just before our own create; its watch will report if that is gone again.
            if not (key in self._own_writes and version_of(self._objects[key]) > int(version)):
                self._remove(key)
        for key, body in listed.items():
            try:
                self._store(key, body, from_list=True)
            except Exception as error:  # as in a watch
                log.exception("object_skipped", watch=self.name, name=key[1], error=str(error))

    def _store(self, key: ObjectKey, body: KubernetesObject, *, from_list: bool = False, quiet: bool = False) -> None:
        held = self._objects.get(key)
        if held is not None and held["metadata"]["uid"] == body["metadata"]["uid"]:
            newer = version_of(body) - version_of(held)
            # Lists win, so that a server restored to an older state is believed; but not over our own fresh write.
            if newer == 0 or (newer < 0 and (not from_list or key in self._own_writes)):
                return
        self._objects[key] = body
        self._index(key, held, body)
        self._on_size(key, body.get(SIZE, 0))
        if not quiet:
            self._on_change(held, body)

    def _remove(self, key: ObjectKey) -> None:
        held = self._objects.pop(key, None)
        if held is not None:
            self._own_writes.pop(key, None)
            self._index(key, held, None)
            self._on_size(key, 0)
            self._on_change(held, None)

    def _index(self, key: ObjectKey, before: KubernetesObject | None, after: KubernetesObject | None) -> None:
        namespace, _ = key
        for uid in _owner_uids(before):
            owned = self._by_owner.get((namespace, uid), set())
            owned.discard(key)
            if not owned:
                self._by_owner.pop((namespace, uid), None)
        for uid in _owner_uids(after):
            self._by_owner.setdefault((namespace, uid), set()).add(key)


def drop_managed_fields(body: KubernetesObject) -> KubernetesObject:
    """Returns the object without the list of who set which field, often half of its size."""
    metadata = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    return {**body, "metadata": metadata}


def key_of_copy(body: KubernetesObject) -> ObjectKey:
    """Returns namespace and name of an object."""
    return body["metadata"].get("namespace", ""), body["metadata"]["name"]


def version_of(body: KubernetesObject) -> int:
    """Returns the resourceVersion of an object."""
    # Comparable within a kind: promised since Kubernetes 1.35, and true of every etcd-backed server before it.
    return int(body["metadata"]["resourceVersion"])


def _owner_uids(body: KubernetesObject | None) -> list[str]:
    if body is None:
        return []
    return [reference["uid"] for reference in body["metadata"].get("ownerReferences", [])]
