"""Objects that a user may write and an operator must survive, as the bytes that go over the wire.

Bytes and not values: what nests ten thousand levels deep cannot be built or written by Python's own `json`.
"""

import json
from pathlib import Path
from typing import Any

from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.pod_driver import Api

HERE = "@@config@@"
MEGABYTES = 1_450_000  # etcd takes 1.5 MiB with everything the API server adds


def a_poisoned_run(name: str, config: str) -> bytes:
    """Returns a TrainingRun whose spec.config is the JSON text `config`."""
    return _with(a_training_run(name, "town", config={"it": HERE}), config)


def a_poisoned_cache(name: str, config: str) -> bytes:
    """Returns a DatasetCache whose spec.config is the JSON text `config`."""
    return _with(a_dataset_cache(name, "datasets/town", config={"it": HERE}), config)


def nested(depth: int, *, mappings: bool = False) -> str:
    """Returns a config of `depth` levels: of lists, or of mappings, which managedFields repeat level by level."""
    if mappings:
        return '{"a":' * depth + "1" + "}" * depth
    return '{"a":' + "[" * (depth - 1) + "]" * (depth - 1) + "}"


def large(what: str, size: int = MEGABYTES) -> str:
    """Returns a config of `size` bytes: of empty lists, a long string, many strings, or a wide mapping of mappings."""
    if what == "lists":
        return '{"a":[' + "[]," * (size // 3) + "[]]}"
    if what == "string":
        return '{"a":"' + "x" * size + '"}'
    if what == "strings":
        return '{"a":[' + ",".join(f'"{number}"' for number in range(size // 9)) + "]}"
    if what == "nests":
        return '{"a":[' + "[[[]]]," * (size // 7) + "[]]}"
    entries = ",".join(f'"k{number}":{number}' for number in range(size // 1300))
    return "{" + ",".join(f'"a{part}":{{{entries}}}' for part in range(100)) + "}"


class Sender:
    """Sends raw bodies to one namespace of an API server."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self._api = Api(kubeconfig)
        self.namespace = namespace
        self._at = f"/apis/lead.dev/v1alpha1/namespaces/{namespace}"
        self._created: list[str] = []  # paths

    def create(self, body: bytes) -> int:
        """Creates a resource; returns the HTTP status."""
        plural = "trainingruns" if b'"kind": "TrainingRun"' in body else "datasetcaches"
        status, _ = self.send("POST", f"{self._at}/{plural}", body)
        if status == 201:
            name = json.loads(body[body.index(b'"name": ') + len(b'"name": ') :].split(b"}")[0])
            self._created.append(f"{self._at}/{plural}/{name}")
        return status

    def patch(self, plural: str, name: str, body: bytes) -> int:
        """Merges a patch into a resource; returns the HTTP status."""
        return self.send("PATCH", f"{self._at}/{plural}/{name}", body, "application/merge-patch+json")[0]

    def delete_all(self) -> None:
        """Deletes what it has created, one after another: kubectl would list all of it first."""
        for path in self._created:
            self.send("DELETE", path, b"")
        self._created.clear()

    def send(self, method: str, path: str, body: bytes, kind: str = "application/json") -> tuple[int, bytes]:
        """Returns status and body of one call."""
        return self._api.send(method, path, body, kind)


def _with(body: dict[str, Any], config: str) -> bytes:
    text = json.dumps(body)
    assert text.count(json.dumps({"it": HERE})) == 1
    return text.replace(json.dumps({"it": HERE}), config).encode()
