"""The only calls to the API server: plain verbs on plain dicts, bounded in number, in time and in tries.

Used by the informers, by `apply`, by the lease and by the event recorder. Bodies stay dicts: the generated model
classes cost more to fill than all decisions together. It never decides what to do about a failure: it raises
`api_errors`, whose type shows whether the same call may succeed later.
"""

import asyncio
import os
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import getproxies_environment

import aiohttp
import structlog
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration

from lead_operator import metrics, names
from lead_operator.kube.answers import (
    MAX_OBJECT_BYTES,
    connection_errors,
    parse_error,
    parse_event,
    parse_object,
    parse_page,
    read_answer,
    read_lines,
)
from lead_operator.kube.api_errors import (
    AnswerTooLarge,
    ApiError,
    Conflict,
    NotFound,
    Unreachable,
    error_for,
)
from lead_operator.kube.kinds import EVENT, LEASE, POD, Kind, KubernetesObject, kind_of
from lead_operator.kube.rate_limiter import RateLimiter
from lead_operator.kube.server_clock import ServerClock
from lead_operator.resources.stored import Stored

CALL_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0
WATCH_GRACE_S = 15.0  # after the end that the server was asked for, silence is a broken connection
TRIES = 3  # within one call; beyond them the work queue's backoff takes over
LIST_PAGE = 200
MAX_PAGE_BYTES = 4 * 1024 * 1024  # of a list; of a page that is larger, a smaller one is asked for

log = structlog.get_logger(__name__)

Trim = Callable[[KubernetesObject], KubernetesObject]

_JSON = "application/json"
_MERGE = "application/merge-patch+json"
_APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True)
class CallTimes:
    """How long the API server has to answer, in seconds."""

    call_s: float = field(default_factory=lambda: CALL_TIMEOUT_S)
    connect_s: float = field(default_factory=lambda: CONNECT_TIMEOUT_S)
    watch_grace_s: float = field(default_factory=lambda: WATCH_GRACE_S)


class KubeClient:
    """Verbs on the API server for one identity."""

    def __init__(self, api: ApiClient, turns: RateLimiter | None = None, times: CallTimes | None = None) -> None:
        self._times = times or CallTimes()
        self._api = api
        self._api.user_agent = names.FIELD_MANAGER
        self._turns = turns or RateLimiter()
        self.clock = ServerClock()

    @classmethod
    async def connect(cls, turns: RateLimiter | None = None, times: CallTimes | None = None) -> "KubeClient":
        """Reads the service account of the pod, or the kubeconfig of the environment; does not call the server yet."""
        configuration = Configuration()
        configuration.connection_pool_maxsize = 0  # turns bound the calls; watches would starve a bounded pool
        # Without a proxy, searching for one and for ~/.netrc at every call would cost as much as sending it.
        configuration.client_session_kwargs = {"trust_env": bool(getproxies_environment())}
        if "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ:
            config.load_incluster_config(client_configuration=configuration)
        else:
            file = os.environ.get("KUBECONFIG", str(Path.home() / ".kube/config"))
            await config.load_kube_config(config_file=file, client_configuration=configuration, persist_config=False)
        return cls(ApiClient(configuration), turns, times)

    async def close(self) -> None:
        """Closes all connections."""
        await self._api.close()

    async def get(self, kind: Kind, namespace: str, name: str, *, whole: bool = False) -> KubernetesObject | None:
        """Returns one object as the server holds it now, or None; `whole`: of a custom resource every `config` too."""
        try:
            answer = await self._call_raw("GET", kind.path(namespace, name), kind=kind)
        except NotFound:
            return None
        return parse_object(kind, answer, whole=whole)

    async def list(
        self, kind: Kind, namespace: str, *, trim: Trim, selector: str = "", fields: str = ""
    ) -> tuple[list[KubernetesObject], str]:
        """Returns what `trim` leaves of every object of a kind, and the resourceVersion to watch from; reads pages.

        `selector` and `fields`: of labels and of fields, as `kubectl get` takes them.

        Where objects are large the pages have fewer of them, so that no list is in memory whole. A custom resource
        that cannot be understood at all is logged and left out.
        """
        items: list[KubernetesObject] = []
        chosen = {"labelSelector": selector, "fieldSelector": fields}
        query = {name: value for name, value in chosen.items() if value}
        limit = LIST_PAGE
        while True:
            most = MAX_PAGE_BYTES if limit > 1 else MAX_OBJECT_BYTES
            try:
                answer = await self._call_raw(
                    "GET", kind.path(namespace), kind=kind, query={**query, "limit": str(limit)}, verb="list", most=most
                )
            except AnswerTooLarge:
                if limit == 1:
                    raise
                limit = max(1, limit // 8)
                continue
            found, metadata = parse_page(kind, answer)
            for item in found:
                try:
                    items.append(trim(item))
                except Exception as error:  # whatever one object holds, the list is not lost for it
                    log.exception("object_skipped", kind=kind.kind, error=str(error))
            following = metadata.get("continue")
            if not following:
                return items, metadata["resourceVersion"]
            query["continue"] = following
            if len(answer) < MAX_PAGE_BYTES // 16:
                limit = min(LIST_PAGE, limit * 8)

    async def log(self, namespace: str, pod: str, container: str, *, lines: int, most: int) -> str:
        """Returns the last lines of a container's log, at most `most` bytes of them; raises NotFound without a pod."""
        query = {"container": container, "tailLines": str(lines), "limitBytes": str(most)}
        answer = await self._call_raw("GET", POD.path(namespace, pod, "log"), kind=POD, query=query, verb="log")
        return answer.decode("utf-8", "replace")

    async def watch(
        self, kind: Kind, namespace: str, *, selector: str, resource_version: str, timeout_s: float
    ) -> AsyncGenerator[tuple[str, KubernetesObject], None]:
        """Yields (type, object) of each change after `resource_version`, bookmarks too, until `timeout_s` is over.

        Raises Gone, Unreachable or Refused as the server or the connection ends it. A connection on which nothing at
        all arrives past the agreed end counts as broken: frozen watches are how operators stall.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(max(1, int(timeout_s))),
        } | ({"labelSelector": selector} if selector else {})
        limit = aiohttp.ClientTimeout(total=timeout_s + self._times.watch_grace_s, sock_connect=self._times.connect_s)
        with connection_errors(kind.plural), metrics.api_call("watch", kind.plural) as outcome:
            response = await self._send("GET", kind.path(namespace), query=query, timeout=limit)
            async with response:
                outcome.code = response.status
                if response.status >= 400:
                    raise parse_error(response.status, await response.read())
                async for line in read_lines(response.content):
                    change, found = parse_event(kind, line)
                    if change == "ERROR":
                        raise error_for(found.get("code", 500), found.get("reason", ""), found.get("message", ""))
                    if found:
                        yield change, found

    async def create(self, body: KubernetesObject) -> KubernetesObject:
        """Creates an object and returns it as stored; raises AlreadyExists where the name is taken, by whomever."""
        kind, query = kind_of(body), {"fieldManager": names.FIELD_MANAGER}
        return await self._call("POST", kind.path(body["metadata"]["namespace"]), kind=kind, query=query, body=body)

    async def would_create(self, body: KubernetesObject) -> None:
        """Asks for an object without having it made; raises what `create` would."""
        kind, query = kind_of(body), {"fieldManager": names.FIELD_MANAGER, "dryRun": "All"}
        await self._call("POST", kind.path(body["metadata"]["namespace"]), kind=kind, query=query, body=body)

    async def review(self, kind: Kind, spec: KubernetesObject) -> KubernetesObject:
        """Asks for a review, which the server answers and does not keep; returns its status."""
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec}
        answer: KubernetesObject = (await self._call("POST", kind.path(), kind=kind, body=body)).get("status") or {}
        return answer

    async def delete(
        self, kind: Kind, namespace: str, name: str, *, uid: str, version: str = "", grace_period_s: int | None = None
    ) -> None:
        """Deletes the object of this UID, as it is in this version where one is given.

        One that is gone, has changed since, or is another of the same name is left as it is. A change arrives by the
        watch, and with it the next pass.
        """
        seen = {"uid": uid, "resourceVersion": version} if version else {"uid": uid}
        options: KubernetesObject = {"preconditions": seen, "propagationPolicy": "Background"}
        if grace_period_s is not None:
            options["gracePeriodSeconds"] = grace_period_s
        try:
            await self._call("DELETE", kind.path(namespace, name), kind=kind, body=options)
        except NotFound:
            return
        except ApiError as error:
            if error.status != 409:
                raise

    async def apply_status(self, kind: Kind, stored: Stored, status: dict[str, Any]) -> KubernetesObject:
        """Makes `status` the status of the very object that was seen; returns the object as it then is.

        A compare-and-swap: raises Conflict where the object has changed since, or is another one of the same name.
        """
        identity = stored.identity
        seen = {"name": identity.name, "namespace": identity.namespace, **_version(stored)}
        wanted = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": seen, "status": status}
        path = kind.path(identity.namespace, identity.name, "status")
        query = {"fieldManager": names.FIELD_MANAGER, "force": "true"}
        return await self._call("PATCH", path, kind=kind, query=query, body=wanted, content_type=_APPLY)

    async def replace_status(self, kind: Kind, body: KubernetesObject, status: dict[str, Any]) -> KubernetesObject:
        """Makes `status` the whole status of an object, whoever else has written fields of it; raises Conflict."""
        metadata = body["metadata"]
        wanted = {**body, "apiVersion": kind.api_version, "kind": kind.kind, "status": status}
        path, query = (
            kind.path(metadata["namespace"], metadata["name"], "status"),
            {"fieldManager": names.FIELD_MANAGER},
        )
        return await self._call("PUT", path, kind=kind, query=query, body=wanted)

    async def set_finalizers(self, kind: Kind, stored: Stored, finalizers: Sequence[str]) -> KubernetesObject:
        """Gives the very object that was seen these finalizers; raises Conflict where it has changed."""
        wanted = {**_version(stored), "finalizers": [*finalizers]}
        path = kind.path(stored.identity.namespace, stored.identity.name)
        query = {"fieldManager": names.FIELD_MANAGER}
        return await self._call("PATCH", path, kind=kind, query=query, body={"metadata": wanted}, content_type=_MERGE)

    async def annotate(self, kind: Kind, namespace: str, name: str, *, uid: str, key: str, value: str) -> None:
        """Sets one annotation of the object of this UID; one that is gone, or another of the same name, is left."""
        wanted = {"metadata": {"uid": uid, "annotations": {key: value}}}
        path, query = kind.path(namespace, name), {"fieldManager": names.FIELD_MANAGER}
        with suppress(NotFound, Conflict):
            await self._call("PATCH", path, kind=kind, query=query, body=wanted, content_type=_MERGE)

    async def count_event(self, event: KubernetesObject) -> None:
        """Updates count and time of an earlier event; raises NotFound where it no longer exists."""
        wanted = {"count": event["count"], "lastTimestamp": event["lastTimestamp"]}
        path = EVENT.path(event["metadata"]["namespace"], event["metadata"]["name"])
        await self._call(
            "PATCH", path, kind=EVENT, query={"fieldManager": names.FIELD_MANAGER}, body=wanted, content_type=_MERGE
        )

    async def replace(self, body: KubernetesObject) -> KubernetesObject:
        """Puts an object back as changed; raises Conflict where its resourceVersion is no longer the newest."""
        kind, metadata = kind_of(body), body["metadata"]
        path = kind.path(metadata["namespace"], metadata["name"])
        return await self._call("PUT", path, kind=kind, body=body)

    async def _call(
        self,
        method: str,
        path: str,
        *,
        kind: Kind,
        query: dict[str, str] | None = None,
        body: KubernetesObject | None = None,
        content_type: str = _JSON,
    ) -> KubernetesObject:
        answer = await self._call_raw(method, path, kind=kind, query=query, body=body, content_type=content_type)
        return parse_object(kind, answer)

    async def _call_raw(
        self,
        method: str,
        path: str,
        *,
        kind: Kind,
        query: dict[str, str] | None = None,
        body: KubernetesObject | None = None,
        content_type: str = _JSON,
        verb: str = "",
        most: int = MAX_OBJECT_BYTES,
    ) -> bytes:
        # Every call may be carried out twice without harm: names are deterministic, deletes carry a UID, and status
        # writes a resourceVersion. So a lost answer is simply asked for again.
        for attempt in range(1, TRIES + 1):
            try:
                async with nullcontext() if kind is LEASE else self._turns.turn(_namespace_in(path)):
                    return await self._call_once(method, path, kind, query, body, content_type, verb, most)
            except Unreachable:
                if attempt == TRIES:
                    raise
            await asyncio.sleep(random.uniform(0.1, 0.4) * 2**attempt)
        raise AssertionError("the loop returns or raises")

    async def _call_once(
        self,
        method: str,
        path: str,
        kind: Kind,
        query: dict[str, str] | None,
        body: KubernetesObject | None,
        content_type: str,
        verb: str,
        most: int,
    ) -> bytes:
        limit = aiohttp.ClientTimeout(total=self._times.call_s, sock_connect=self._times.connect_s)
        with connection_errors(path), metrics.api_call(verb or method.lower(), kind.plural) as outcome:
            response = await self._send(method, path, query=query, body=body, content_type=content_type, timeout=limit)
            async with response:
                outcome.code = response.status
                answer = await read_answer(response, most)
            if response.status >= 400:
                raise parse_error(response.status, answer)
            return answer

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: KubernetesObject | None = None,
        content_type: str = _JSON,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": _JSON, "Content-Type": content_type}
        method, url, headers, body, _ = await self._api.param_serialize(
            method, path, query_params=list((query or {}).items()), header_params=headers, body=body,
            auth_settings=["BearerToken"],
        )  # fmt: skip
        answer = await self._api.rest_client.request(method, url, headers=headers, body=body, _request_timeout=timeout)
        response: aiohttp.ClientResponse = answer.response
        self.clock.note(response.headers.get("Date"))
        return response


def _version(stored: Stored) -> dict[str, str]:
    """Returns what makes a write fail where the object has changed, or is another of the same name."""
    return {"uid": stored.identity.uid, "resourceVersion": stored.version}


def _namespace_in(path: str) -> str:
    parts = path.split("/")
    return parts[parts.index("namespaces") + 1] if "namespaces" in parts else ""
