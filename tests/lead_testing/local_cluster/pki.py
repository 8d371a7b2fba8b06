"""Keys, certificates and kubeconfigs of one cluster, made by openssl; called by the control plane and the cluster.

One authority signs everything and lives as long as the state folder.
"""

import base64
import json
from dataclasses import dataclass
from pathlib import Path

from lead_testing.local_cluster.commands import run_logged

DAYS = "3650"


@dataclass(frozen=True)
class Identity:
    """Whom a certificate names: file name, subject, and for a server the addresses and names it answers to."""

    name: str
    common_name: str
    organization: str = ""
    hosts: tuple[str, ...] = ()  # "IP:10.0.0.1" or "DNS:kubernetes.default.svc"


ADMIN = Identity("admin", "lead-admin", "system:masters")


class Authority:
    """The certificate authority of one folder; every method is a no-op where its files exist."""

    def __init__(self, folder: Path) -> None:
        """Makes the authority and the service-account key on first use of the folder."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._log = folder / "openssl.log"
        if not self.certificate("ca").exists():
            self._sign("ca", "/CN=lead-local-cluster", ("basicConstraints=critical,CA:TRUE",), authority=())
        if not self.key("service-accounts").exists():
            unfinished = folder / ".service-accounts.key"
            run_logged(["openssl", "genpkey", "-algorithm", "RSA", "-out", unfinished], self._log)
            unfinished.replace(self.key("service-accounts"))

    def certificate(self, name: str) -> Path:
        """Tells where a certificate lies."""
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        """Tells where a private key lies."""
        return self.folder / f"{name}.key"

    def issue(self, identity: Identity) -> None:
        """Signs a certificate for server and client use."""
        if self.certificate(identity.name).exists():
            return
        organization = f"/O={identity.organization}" if identity.organization else ""
        extensions = ["basicConstraints=critical,CA:FALSE", "extendedKeyUsage=serverAuth,clientAuth"]
        if identity.hosts:
            extensions.append(f"subjectAltName={','.join(identity.hosts)}")
        signer = ("-CA", str(self.certificate("ca")), "-CAkey", str(self.key("ca")))
        self._sign(identity.name, f"{organization}/CN={identity.common_name}", tuple(extensions), authority=signer)

    def write_kubeconfig(self, identity: Identity, url: str, path: Path) -> None:
        """Writes a self-contained kubeconfig for an issued identity (JSON, which is YAML)."""
        encoded = {
            "authority": _base64(self.certificate("ca")),
            "certificate": _base64(self.certificate(identity.name)),
            "key": _base64(self.key(identity.name)),
        }
        user = {"client-certificate-data": encoded["certificate"], "client-key-data": encoded["key"]}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "lead", "cluster": {"server": url, "certificate-authority-data": encoded["authority"]}}
            ],
            "users": [{"name": identity.name, "user": user}],
            "contexts": [{"name": "lead", "context": {"cluster": "lead", "user": identity.name}}],
            "current-context": "lead",
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.writing")
        unfinished.touch(mode=0o600)
        unfinished.write_text(json.dumps(config, indent=1) + "\n")
        unfinished.replace(path)

    def _sign(self, name: str, subject: str, extensions: tuple[str, ...], *, authority: tuple[str, ...]) -> None:
        unfinished_key, unfinished = self.folder / f".{name}.key", self.folder / f".{name}.crt"
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc"]
        words += ["-days", DAYS, "-subj", subject, *authority, "-keyout", str(unfinished_key), "-out", str(unfinished)]
        for extension in extensions:
            words += ["-addext", extension]
        run_logged(words, self._log)
        unfinished_key.replace(self.key(name))  # the certificate last: it is what tells that both are there
        unfinished.replace(self.certificate(name))


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
