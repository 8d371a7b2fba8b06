"""Calls to the API server: one deadline each, and its failures as the errors of `lead_client`."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lead_client.errors import (
    AlreadyExists,
    ClientError,
    InvalidObject,
    NotAllowed,
    NotFound,
    Unavailable,
    missing_extra,
)
from lead_client.objects.manifests import API_VERSION, Manifest

GROUP, _, VERSION = API_VERSION.partition("/")
FIELD_MANAGER = "lead-client"
CALL_S = (5.0, 30.0)  # to connect, and for each read
WATCH_S = 20  # the server ends a watch after that; a silent connection is noticed as late
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_FAULTS: Mapping[int, type[ClientError]] = {
    400: InvalidObject, 401: NotAllowed, 403: NotAllowed, 404: NotFound, 409: AlreadyExists, 413: InvalidObject,
    422: InvalidObject, 429: Unavailable,
}  # fmt: skip


class Api:
    """The API server of one context of a kubeconfig, or of the pod that this runs in."""

    def __init__(self, kubeconfig: str | None, context: str | None) -> None:
        """Reads the kubeconfig (KUBECONFIG, ~/.kube/config), else the ServiceAccount of this pod; makes no request."""
        try:
            from kubernetes import client, config
        except ModuleNotFoundError as error:
            raise missing_extra("kubernetes", "client") from error
        self.kubeconfig, self.context = kubeconfig, context
        self._refused = client.ApiException
        self.in_pod = False
        settings = client.Configuration()
        settings.retries = False  # `changes` tries again, with its own pauses and without a warning each
        try:
            contexts, current = config.list_kube_config_contexts(kubeconfig)
            chosen = next((each for each in contexts if each["name"] == context), None) if context else current
            if chosen is None:
                names = ", ".join(each["name"] for each in contexts)
                raise NotFound(f"context: found {context!r}, expected one of {names}")
            self.namespace = chosen["context"].get("namespace") or "default"
            config.load_kube_config(kubeconfig, context, client_configuration=settings)
        except config.ConfigException as error:
            if kubeconfig or context or not _NAMESPACE_FILE.exists():
                raise NotFound(f"no cluster: {error}; set KUBECONFIG, or name a file by kubeconfig=") from error
            config.load_incluster_config(settings)
            self.namespace, self.in_pod = _NAMESPACE_FILE.read_text().strip(), True
        connection = client.ApiClient(settings)
        self._objects, self._core = client.CustomObjectsApi(connection), client.CoreV1Api(connection)

    def apply(self, manifest: Manifest, namespace: str) -> dict[str, Any]:
        """Applies a manifest (server-side; the same one again changes nothing) and returns the object."""
        where = (GROUP, VERSION, namespace, manifest.plural, manifest.name)
        found: dict[str, Any] = self._call(
            self._objects.patch_namespaced_custom_object, *where, manifest.document(), field_manager=FIELD_MANAGER,
            field_validation="Strict", force=False, _content_type="application/apply-patch+yaml",
        )  # fmt: skip
        return found

    def patch_spec(self, plural: str, namespace: str, name: str, spec: Mapping[str, Any]) -> None:
        """Merges fields into the spec of an object that exists."""
        where = (GROUP, VERSION, namespace, plural, name)
        self._call(
            self._objects.patch_namespaced_custom_object, *where, {"spec": dict(spec)}, field_manager=FIELD_MANAGER,
            field_validation="Strict", _content_type="application/merge-patch+json",
        )  # fmt: skip

    def get(self, plural: str, namespace: str, name: str) -> dict[str, Any]:
        """Returns an object."""
        where = (GROUP, VERSION, namespace, plural, name)
        found: dict[str, Any] = self._call(self._objects.get_namespaced_custom_object, *where)
        return found

    def items(self, plural: str, namespace: str) -> Sequence[dict[str, Any]]:
        """Returns all objects of a namespace; an empty one means all namespaces."""
        if namespace:
            found = self._call(self._objects.list_namespaced_custom_object, GROUP, VERSION, namespace, plural)
        else:
            found = self._call(self._objects.list_custom_object_for_all_namespaces, GROUP, VERSION, plural)
        return list(found["items"])

    def delete(self, plural: str, namespace: str, name: str) -> None:
        """Deletes an object."""
        self._call(self._objects.delete_namespaced_custom_object, GROUP, VERSION, namespace, plural, name)

    def pods(self, namespace: str, labels: str) -> Sequence[Any]:
        """Returns the pods with these labels, by name."""
        found = self._call(self._core.list_namespaced_pod, namespace, label_selector=labels)
        return sorted(found.items, key=lambda pod: pod.metadata.creation_timestamp)

    def pod_log(self, namespace: str, pod: str, container: str) -> str:
        """Returns what a container has logged."""
        text: str = self._call(self._core.read_namespaced_pod_log, pod, namespace, container=container)
        return text

    def secret(self, namespace: str, name: str) -> dict[str, str]:
        """Returns the data of a Secret, base64."""
        return dict(self._call(self._core.read_namespaced_secret, name, namespace).data or {})

    def config_map(self, namespace: str, name: str) -> dict[str, str]:
        """Returns the data of a ConfigMap."""
        return dict(self._call(self._core.read_namespaced_config_map, name, namespace).data or {})

    def changes(self, plural: str, namespace: str, name: str, deadline: float | None) -> Iterator[dict[str, Any]]:
        """Yields an object now and after each change until `deadline` (of time.monotonic; None: for ever).

        It reads the object, then watches from there; a watch that ends or breaks, and an API server that is away, begin
        it again. Raises NotFound once the object is deleted, or another one has its name.
        """
        uid, version, pause = "", "", 0.2
        while deadline is None or time.monotonic() < deadline:
            try:
                found = self.get(plural, namespace, name)
                pause = 0.2
                for each in self._with_changes(plural, namespace, name, found, deadline):
                    metadata = each["metadata"]
                    if uid and metadata["uid"] != uid:
                        raise NotFound(f"{plural} {namespace}/{name} was deleted; another one has its name now")
                    uid = metadata["uid"]
                    if metadata["resourceVersion"] != version:
                        version = metadata["resourceVersion"]
                        yield each
            except Unavailable:
                left = pause if deadline is None else min(pause, max(0.0, deadline - time.monotonic()))
                time.sleep(left)
                pause = min(pause * 2, 5.0)

    def _with_changes(self, plural: str, namespace: str, name: str, found: dict[str, Any],
                      deadline: float | None) -> Iterator[dict[str, Any]]:  # fmt: skip
        from kubernetes import watch

        yield found
        left = WATCH_S if deadline is None else min(WATCH_S, max(1, round(deadline - time.monotonic())))
        events = watch.Watch().stream(
            self._objects.list_namespaced_custom_object, GROUP, VERSION, namespace, plural,
            field_selector=f"metadata.name={name}", resource_version=found["metadata"]["resourceVersion"],
            timeout_seconds=left, _request_timeout=(CALL_S[0], left + CALL_S[0]),
        )  # fmt: skip
        while (event := self._call(next, events, None)) is not None:
            if event["type"] == "DELETED":
                raise NotFound(f"{plural} {namespace}/{name} was deleted")
            yield event["object"]

    def _call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        from urllib3.exceptions import HTTPError, ProtocolError

        if function is not next:
            options.setdefault("_request_timeout", CALL_S)
        try:
            return function(*arguments, **options)
        except self._refused as error:
            raise _fault(error) from error
        except (HTTPError, ProtocolError, OSError) as error:
            raise Unavailable(f"the API server does not answer: {str(error)[:300]}") from error


def _fault(error: Any) -> ClientError:
    """Returns the API server's answer as an error, in its own sentence."""
    try:
        sentence = json.loads(error.body)["message"]
    except (TypeError, ValueError, KeyError, RecursionError):
        sentence = None
    if not isinstance(sentence, str):
        sentence = f"{error.status} {error.reason}: {str(error.body)[:300]}"
    code = int(error.status or 0)
    return _FAULTS.get(code, Unavailable if code >= 500 or code == 410 or not code else ClientError)(sentence)
