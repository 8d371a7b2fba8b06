"""The certificate of the embedded store of a release, its authority, and who has heard of a changed one."""

import base64
import ssl
import tempfile
import uuid
from pathlib import Path

from lead_testing.installed import Installed

# Where the clients that live long have mounted ConfigMap lead-store-ca-default, by their label.
_MOUNTED = {
    "lead.dev/rank": "/etc/lead/s3/ca.crt",
    "app.kubernetes.io/component=operator": "/etc/lead/s3/default/ca.crt",
    "app=sts-relay": "/authority/ca.crt",
}


def trusted(release: Installed) -> str:
    """Returns the certificates of the authorities that clients trust."""
    return str(release.get("configmap", "lead-store-ca-default")["data"]["ca.crt"]).strip()


def authorities(bundle: str) -> int:
    """Returns how many certificates a text holds."""
    return bundle.count("BEGIN CERTIFICATE")


def authority(release: Installed, key: str) -> str:
    """Returns one key of the Secret of the release's authority, which no pod mounts."""
    return base64.b64decode(release.get("secret", "lead-minio-ca")["data"][key]).decode().strip()


def certificate(release: Installed) -> str:
    """Returns the certificate that the store shows."""
    with release.port_forward("svc/lead-minio", 9000) as port:
        return ssl.get_server_certificate(("127.0.0.1", port), timeout=30)


def is_served_by(release: Installed, bundle: str) -> bool:
    """Tells whether one of these authorities has signed what the store shows."""
    with tempfile.TemporaryDirectory() as folder, release.port_forward("svc/lead-minio", 9000) as port:
        (file := Path(folder) / "ca.crt").write_text(bundle)
        try:
            ssl.get_server_certificate(("127.0.0.1", port), ca_certs=str(file), timeout=30)
        except ssl.SSLCertVerificationError:
            return False
        return True


def wait_until_mounted(release: Installed, bundle: str) -> None:
    """Waits until every client that lives reads this text in its mounted `ca.crt`.

    A changed annotation lets the kubelet bring mounted objects at once; without one it takes up to two minutes.
    """
    release.kubectl("annotate", "pods", "--all", "--overwrite", f"tests.lead.dev/look={uuid.uuid4().hex}")
    for selector, file in _MOUNTED.items():
        for pod in release.items("pods", selector):
            if pod["status"]["phase"] == "Running":
                name = pod["metadata"]["name"]
                release.wait_for(f"{file} of {name}", lambda name=name, file=file: _read(release, name, file) == bundle)  # type: ignore[misc]


def _read(release: Installed, pod: str, file: str) -> str:
    script = f"print(open({file!r}).read())"
    return release.run("kubectl", "exec", pod, "--", "python3", "-c", script).stdout.strip()
