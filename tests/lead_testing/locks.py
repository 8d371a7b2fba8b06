"""Writes the lock files: every package that an image or the test environment installs, pinned with its hashes.

    make lock        # after a change of pyproject.toml, or to take newer releases: `make lock ARGS=--upgrade`

`images/locks/all.txt` is resolved from every extra together; the others hold the part of it that one image needs, so
tests run on what the images hold. Installing with `--require-hashes` refuses a package whose bytes differ.
"""

import argparse
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from lead_testing import PROJECT_ROOT

LOCKS = PROJECT_ROOT / "images/locks"
PYTHON = "3.11"  # the oldest that the project supports, and that of the images
_PINNED = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==(\S+)", re.MULTILINE)


def requirements() -> dict[str, list[str]]:
    """Returns what each lock is resolved from; the first one bounds the versions of the others."""
    document = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())
    project, build = document["project"], document["build-system"]["requires"]
    base, extras = project["dependencies"], project["optional-dependencies"]
    every = [line for lines in extras.values() for line in lines if not line.startswith(project["name"])]
    return {
        "all": [*base, *every, *build, "editables"],  # hatchling asks for `editables` where it installs in place
        "build": build,
        "operator": [*base, *extras["operator"], *extras["ui"]],
        "torch": [line for line in extras["trainer"] if re.match(r"torch\b", line)],
        "trainer": [*base, *extras["trainer"]],
        "uv": [line for line in extras["dev"] if re.match(r"uv\b", line)],
    }


def pinned(text: str) -> dict[str, set[str]]:
    """Returns the versions of each package in a lock; more than one where they depend on Python or the platform."""
    found: dict[str, set[str]] = {}
    for name, version in _PINNED.findall(text):
        found.setdefault(name.lower().replace("_", "-"), set()).add(version)
    return found


def write_locks(*, upgrade: bool = False) -> None:
    """Resolves every lock with uv; what is locked stays unless `upgrade`, or unless pyproject.toml excludes it."""
    LOCKS.mkdir(exist_ok=True)
    for name, lines in requirements().items():
        lock = LOCKS / f"{name}.txt"
        words = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "-", "--quiet", "--universal"]
        words += [
            "--python-version",
            PYTHON,
            "--generate-hashes",
            "--no-header",
            "--no-annotate",
            "--no-emit-index-url",
        ]
        if name != "all":
            lock.unlink(missing_ok=True)
            words += ["--constraint", str(LOCKS / "all.txt")]
        elif upgrade:
            words += ["--upgrade"]
        words += ["--output-file", str(lock)]
        subprocess.run(words, input="\n".join(lines), text=True, check=True, cwd=PROJECT_ROOT)
        print(f"{lock.relative_to(PROJECT_ROOT)}: {len(pinned(lock.read_text()))} packages")


def main() -> int:
    """Writes the locks; returns the exit status."""
    parser = argparse.ArgumentParser(prog="make lock", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--upgrade", action="store_true", help="take the newest releases that pyproject.toml allows")
    write_locks(upgrade=parser.parse_args().upgrade)
    return 0


if __name__ == "__main__":
    sys.exit(main())
