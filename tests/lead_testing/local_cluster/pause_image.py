"""The image of a pod's first process: one static program, packed by hand and given to containerd. Called by `up`."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

from lead_testing.local_cluster import addresses as at
from lead_testing.local_cluster.binaries import PROGRAMS, SOURCES, ensure_programs, go_module_stamp
from lead_testing.local_cluster.commands import read_output
from lead_testing.local_cluster.home import Home


def pause_reference() -> str:
    """Names the image by the stamp of its source."""
    return f"lead.local/pause:{go_module_stamp(SOURCES / 'pause', PROGRAMS['pause'].linker_flags)}"


def ensure_pause_image(home: Home) -> None:
    """Imports the image into the running containerd, where it is not there yet."""
    ctr = ["ctr", "--address", str(at.CONTAINERD_SOCKET), "--namespace", "k8s.io", "images"]
    if pause_reference() in read_output([*ctr, "list", "-q"]).split():
        return
    program = ensure_programs(home, ("pause",))["pause"]
    archive = home.images / "pause.tar"
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.write_bytes(build_image_archive(program, pause_reference()))
    read_output([*ctr, "import", archive])


def build_image_archive(program: Path, reference: str) -> bytes:
    """Packs one program as an image archive in Docker's format, equal bytes for equal input."""
    layer = _tar({"pause": (program.read_bytes(), 0o755)})
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [reference], "Layers": ["layer.tar"]}]
    documents = {"config.json": config, "manifest.json": manifest}
    files = {name: (json.dumps(document).encode(), 0o644) for name, document in documents.items()}
    return _tar({**files, "layer.tar": (layer, 0o644)})


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
