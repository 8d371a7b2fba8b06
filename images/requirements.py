"""Prints the requirements of one side, `operator` or `trainer`, out of pyproject.toml.

Runs inside the image builds: a layer that depends on these lines alone outlives any other change.
"""

import re
import sys
import tomllib
from pathlib import Path


def requirements_of(pyproject: str, side: str, package: str = "") -> list[str]:
    """Reads base and side dependencies, sorted; with a package named, its line alone."""
    project = tomllib.loads(pyproject)["project"]
    lines = sorted({*project["dependencies"], *project["optional-dependencies"][side]})
    if not package:
        return lines
    found = [line for line in lines if re.split(r"[^A-Za-z0-9._-]", line)[0] == package]
    if len(found) != 1:
        raise SystemExit(
            f"pyproject.toml names {package!r} {len(found)} times for the {side}, expected once: "
            f"mend the dependencies of the extra [{side}]."
        )
    return found


if __name__ == "__main__":
    print("\n".join(requirements_of(Path(sys.argv[1]).read_text(), *sys.argv[2:])))
