"""Lists what each image holds and signs it; called after `make images` where the environment asks for it.

    LEAD_SBOM=FOLDER       a software bill of materials an image, SPDX JSON, in that folder
    LEAD_COSIGN_KEY=FILE   a signature an image, and its bill of materials attested with the same key

Both work without any service but the registry: the key is a file (`cosign generate-key-pair`), and nothing is sent to a
public transparency log. Its password is read from COSIGN_PASSWORD.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lead_testing.local_cluster.binaries import ensure_programs
from lead_testing.local_cluster.commands import run_logged
from lead_testing.local_cluster.errors import CannotRunHere
from lead_testing.local_cluster.home import Home
from lead_testing.local_cluster.progress import step


@dataclass(frozen=True)
class Provenance:
    """What to state about images, and where the key is."""

    sbom_folder: Path | None
    key: Path | None

    @staticmethod
    def asked_by(environment: Mapping[str, str]) -> "Provenance":
        """Reads the two variables; raises CannotRunHere naming a key that is not there."""
        folder, key = environment.get("LEAD_SBOM", ""), environment.get("LEAD_COSIGN_KEY", "")
        if key and not Path(key).is_file():
            raise CannotRunHere(
                f"LEAD_COSIGN_KEY is {key!r}, which is no file; make a key pair with `cosign generate-key-pair`, "
                "or leave the variable unset to push without signatures."
            )
        return Provenance(Path(folder).resolve() if folder else None, Path(key).resolve() if key else None)


def state_provenance(home: Home, asked: Provenance, references: Mapping[str, str], *, plain_http: bool) -> None:
    """Writes bills of materials and signatures of pushed images; raises StepFailed with the program's last lines.

    `references`: name → reference with `@sha256:…`, because only bytes can be signed. `plain_http`: the registry of the
    local cluster, which speaks no TLS.
    """
    if asked.sbom_folder is None and asked.key is None:
        return
    programs = ensure_programs(home, ("syft", *(["cosign"] if asked.key else [])))
    folder = asked.sbom_folder or home.root / "sbom"
    folder.mkdir(parents=True, exist_ok=True)
    log = home.root / "logs" / "provenance.log"
    for name, reference in references.items():
        if "@sha256:" not in reference:
            raise CannotRunHere(f"Image {reference} has no digest, because it is in no registry: set LEAD_REGISTRY.")
        bill = folder / f"{name}.spdx.json"
        with step(f"listing what image {name} holds"):
            scan: list[str | Path] = [
                programs["syft"],
                "scan",
                f"registry:{reference}",
                "--output",
                f"spdx-json={bill}",
                "--quiet",
            ]
            run_logged(scan, log, environment=_syft_environment(plain_http))
        if asked.key is not None:
            with step(f"signing image {name}"):
                for words in signing_commands(asked.key, reference, bill, plain_http=plain_http):
                    run_logged([programs["cosign"], *words], log, environment=_cosign_environment())


def signing_commands(key: Path, reference: str, bill: Path, *, plain_http: bool) -> list[list[str]]:
    """Returns the arguments of cosign: sign the image, then attest what it holds."""
    common = ["--yes", "--key", str(key), "--tlog-upload=false"]
    common += ["--allow-http-registry"] if plain_http else []
    return [
        ["sign", *common, reference],
        ["attest", *common, "--type", "spdxjson", "--predicate", str(bill), reference],
    ]


def _syft_environment(plain_http: bool) -> dict[str, str]:
    plain = {"SYFT_REGISTRY_INSECURE_USE_HTTP": "true"} if plain_http else {}
    return {**os.environ, **plain, "SYFT_CHECK_FOR_APP_UPDATE": "false"}


def _cosign_environment() -> dict[str, str]:
    return {"COSIGN_PASSWORD": "", **os.environ}
