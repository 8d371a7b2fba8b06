"""The image that operator and trainer stand on where no public registry is at hand: Debian 12 with Python 3.11."""

import hashlib
import re
import shutil
from pathlib import Path

from lead_testing.local_cluster.commands import run_logged
from lead_testing.local_cluster.home import Home
from lead_testing.local_cluster.progress import step

SUITE = "bookworm"
PACKAGES = ("python3", "python3-venv", "ca-certificates", "tini")
UNUSED = ("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale")
VERSION = "1"  # raise it to make the image anew, with Debian's newest packages
BASE_IMAGE_S = 45


def base_reference() -> str:
    """Names the image by what decides its content."""
    recipe = "\0".join((SUITE, *PACKAGES, *UNUSED, VERSION))
    return f"lead.local/base:{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"


def make_base_image(home: Home, podman: list[str]) -> None:
    """Makes the image in podman's storage; a folder that an interrupted call left is made anew."""
    folder, archive = home.images / "base", home.images / "base.tar"
    log = home.root / "logs" / "base-image.log"
    with step(f"making the base image, Debian 12 with Python 3.11 ({BASE_IMAGE_S} s)", "base image"):
        shutil.rmtree(folder, ignore_errors=True)
        words = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
        run_logged([*words, SUITE, folder, *debian_mirror(Path("/etc/apt"))], log)
        for name in UNUSED:
            shutil.rmtree(folder / name, ignore_errors=True)
            (folder / name).mkdir(parents=True)
        run_logged(["tar", "--create", "--numeric-owner", f"--file={archive}", f"--directory={folder}", "."], log)
        change = ["--change", 'CMD ["python3"]']
        run_logged([*podman, "import", *change, archive, base_reference()], log)
        shutil.rmtree(folder)
        archive.unlink()


def debian_mirror(apt: Path) -> list[str]:
    """Finds where this machine gets Debian from, so that one with a mirror uses it here too; else debootstrap knows."""
    files = [
        apt / "sources.list",
        *sorted(apt.glob("sources.list.d/*.sources")),
        *sorted(apt.glob("sources.list.d/*.list")),
    ]
    for file in files:
        text = file.read_text() if file.exists() else ""
        for url in re.findall(r"(?m)^(?:URIs:|deb(?: \[[^]]*\])?)\s*(https?://\S+?/debian)/?(?:\s|$)", text):
            return [str(url)]
    return []
