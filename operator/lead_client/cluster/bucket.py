"""The way from this machine to the bucket of a storage profile, with this user's rights and nothing more.

The chart puts into every namespace for runs a ConfigMap `lead-store-<profile>` with the store's address and the name of
the Secret whose key reads results. The key is kept in memory. The embedded store has no address outside the cluster, so
kubectl forwards a port of this machine's loopback to it for as long as this process lives.
"""

import atexit
import base64
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from threading import Thread

from lead_client.cluster.api import Api
from lead_client.errors import ClientError, StoreNotReachable
from lead_protocol import environment
from lead_protocol.store.object_store import ObjectStore

_SERVICE = re.compile(r"(?P<service>[a-z0-9-]+)\.(?P<namespace>[a-z0-9-]+)\.svc(?:\.[a-z0-9.-]+)?:(?P<port>\d+)")
_FORWARDED = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")
_REMEDY = "set LEAD_STORE_URL and the variables beside it (charts/lead/operating.md), or Cluster(store={…})"


class Bucket:
    """Opens each storage profile's store once."""

    def __init__(self, api: Api, given: Mapping[str, str] | None) -> None:
        """`given`: the variables of a store; None: those of this process, if it has LEAD_STORE_URL."""
        self._api = api
        self._given = given if given is not None else os.environ if os.environ.get(environment.STORE_URL) else None
        self._stores: dict[tuple[str, str], ObjectStore] = {}
        self._forwards: list[subprocess.Popen[str]] = []

    def store(self, namespace: str, profile: str) -> ObjectStore:
        """Returns the store of a profile; raises StoreNotReachable naming what is missing and what to do."""
        if self._given is not None:
            return self._opened(self._given)
        if any(process.poll() is not None for process in self._forwards):  # a forwarded port that broke
            self._stores.clear()
            self._forwards.clear()
        if (namespace, profile) not in self._stores:
            self._stores[namespace, profile] = self._opened(self._found(namespace, profile))
        return self._stores[namespace, profile]

    def _opened(self, variables: Mapping[str, str]) -> ObjectStore:
        from lead_protocol.store.open_store import StoreNotConfigured, open_store  # which loads an S3 client

        try:
            return open_store(variables)
        except StoreNotConfigured as error:
            raise StoreNotReachable(f"the bucket: {error}") from error

    def _found(self, namespace: str, profile: str) -> dict[str, str]:
        try:
            address = self._api.config_map(namespace, f"lead-store-{profile}")
            key = self._api.secret(namespace, address["viewSecret"])
            authority = self._api.config_map(namespace, address["caConfigMap"]) if address.get("caConfigMap") else {}
        except ClientError as error:
            raise StoreNotReachable(f"the bucket of storage profile {profile}: {error}; {_REMEDY}") from error
        variables = {
            environment.STORE_URL: address["url"],
            environment.STORE_ENDPOINT: self._endpoint(address["endpoint"]),
            environment.STORE_SECURE: address["secure"],
            environment.STORE_REGION: address["region"],
            environment.STORE_ADDRESSING: address["addressing"],
            "AWS_ACCESS_KEY_ID": base64.b64decode(key["access-key"]).decode(),
            "AWS_SECRET_ACCESS_KEY": base64.b64decode(key["secret-key"]).decode(),
        }
        return {**variables, **({"AWS_CA_BUNDLE": _public_file(authority["ca.crt"])} if authority else {})}

    def _endpoint(self, endpoint: str) -> str:
        """Returns where this process reaches a store: a forwarded port for a Service, unless this is a pod."""
        service = _SERVICE.fullmatch(endpoint)
        return endpoint if service is None or self._api.in_pod else self._forwarded(service)

    def _forwarded(self, service: re.Match[str]) -> str:
        kubectl = shutil.which("kubectl")
        if kubectl is None:
            raise StoreNotReachable(f"the bucket is in the cluster, and kubectl, which forwards a port to it, is not "
                                    f"installed; install it, or {_REMEDY}")  # fmt: skip
        where = ["--kubeconfig", self._api.kubeconfig] if self._api.kubeconfig else []
        where += ["--context", self._api.context] if self._api.context else []
        where += ["--namespace", service["namespace"], "--address", "127.0.0.1"]
        command = [kubectl, "port-forward", *where, f"svc/{service['service']}", f":{service['port']}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        atexit.register(_ended, process)
        assert process.stdout is not None
        line = process.stdout.readline()
        if (port := _FORWARDED.match(line)) is None:
            _ended(process)
            raise StoreNotReachable(
                f"the bucket is in the cluster, and kubectl forwards no port to it: {line.strip()}; ask for the right "
                f"to create pods/portforward in namespace {service['namespace']}, or {_REMEDY}"
            )
        self._forwards.append(process)
        Thread(target=process.stdout.read, daemon=True).start()  # a line per connection: a full pipe would stop kubectl
        return f"127.0.0.1:{port[1]}"


def _ended(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    process.wait(timeout=10)


def _public_file(text: str) -> str:
    """Returns the path of a file with a certificate, which is no secret; it is removed when this process ends."""
    with tempfile.NamedTemporaryFile("w", prefix="lead-store-ca-", suffix=".crt", delete=False) as file:
        file.write(text)
    atexit.register(Path(file.name).unlink, missing_ok=True)
    return file.name
