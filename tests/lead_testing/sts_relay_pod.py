"""An `sts_relay` as a Deployment beside a release: what pods are granted ends in seconds, and the STS can be away."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from lead_testing import loopback_server, sts_relay
from lead_testing.installed import Installed
from lead_testing.token_issuer import ROLE_ARN

NAME, PROFILE = "sts-relay", "relayed"
OPERATOR_SECRET = "lead-s3-relayed-operator"  # with the operator's key once more: no Secret of the chart's
PORT = 9000  # the store's, to which the NetworkPolicy of pods of runs lets them
# The embedded store's NetworkPolicy lets pods with this label in.
_LABELS = {"app.kubernetes.io/managed-by": "lead-data", "app": NAME}
_RESTRICTED = {
    "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True,
}  # fmt: skip


def relayed_profile(release: Installed) -> str:
    """Returns the values of a profile that is the embedded store, with the relay as its STS; see `hand_out_key`."""
    values = {
        "endpoint": f"lead-minio.{release.namespace}.svc:9000", "secure": "true", "bucket": "lead",
        "credentials": "webIdentity", "operatorSecret": OPERATOR_SECRET, "roleArn": ROLE_ARN,
        "stsEndpoint": f"http://{NAME}.{release.namespace}.svc:{PORT}", "caConfigMap": "lead-store-ca-default",
    }  # fmt: skip
    return ",".join(f"storage.profiles.{PROFILE}.{key}={value}" for key, value in values.items())


def hand_out_key(release: Installed) -> None:
    """Copies the operator's key of the embedded store into the Secret that the profile names."""
    data = release.get("secret", "lead-operator-s3-default")["data"]
    release.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": OPERATOR_SECRET}, "data": data})


def install_relay(release: Installed, image: str, life_s: float) -> None:
    """Starts the relay by an image with Python and urllib3, and waits until it answers; goes with the namespace."""
    sources = {Path(str(m.__file__)).name: Path(str(m.__file__)).read_text() for m in (loopback_server, sts_relay)}
    command = ["python3", "-m", "lead_testing.sts_relay", f"lead-minio.{release.namespace}.svc:9000", str(life_s),
               "/authority/ca.crt", str(PORT)]  # fmt: skip
    container = {
        "name": "relay", "image": image, "command": command, "env": [{"name": "PYTHONPATH", "value": "/relay"}],
        "ports": [{"containerPort": PORT}], "securityContext": _RESTRICTED,
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
        "volumeMounts": [{"name": "code", "mountPath": "/relay/lead_testing"},
                         {"name": "authority", "mountPath": "/authority"}],
    }  # fmt: skip
    pod = {
        "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 1, "containers": [container],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [{"name": "code", "configMap": {"name": NAME}},
                    {"name": "authority", "configMap": {"name": "lead-store-ca-default"}}],
    }  # fmt: skip
    template = {"metadata": {"labels": _LABELS}, "spec": pod}
    selector = {"app": NAME}
    release.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": sources},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME},
         "spec": {"selector": selector, "ports": [{"port": PORT}]}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME},
         "spec": {"replicas": 1, "selector": {"matchLabels": selector}, "template": template}},
    )  # fmt: skip
    _wait_for_replicas(release, 1)


@contextlib.contextmanager
def sts_away(release: Installed) -> Iterator[None]:
    """Takes the relay away for the length of the block: nobody listens at its Service."""
    _scale(release, 0)
    try:
        yield
    finally:
        _scale(release, 1)


def _scale(release: Installed, replicas: int) -> None:
    release.kubectl("scale", f"deployment/{NAME}", f"--replicas={replicas}")
    _wait_for_replicas(release, replicas)


def _wait_for_replicas(release: Installed, replicas: int) -> None:
    def there() -> bool:
        pods = release.items("pods", f"app={NAME}")
        return len(pods) == replicas and release.status("deployment", NAME).get("readyReplicas", 0) == replicas

    release.wait_for(f"{replicas} pods of {NAME}", there, deadline_s=120)
