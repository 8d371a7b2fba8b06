"""Applies each known-bad change to a copy of the checkout and sees whether its test turns red; a green one is a hole.

    PYTHONPATH=tests .venv/bin/python -m campaign.mutations [--only WORDS] [--out FILE]

The checkout itself is never touched. Each test that turned red is run once more on the unchanged copy: one that is red
there too proves nothing.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from campaign.mutations.table import MUTATIONS, Mutation
from lead_testing import PROJECT_ROOT


def main() -> int:
    """Returns 0 when every mutation was caught."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="only mutations whose name holds these words")
    parser.add_argument("--out", type=Path, help="where to write the result as JSON")
    options = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if options.only in mutation.name]
    with tempfile.TemporaryDirectory(prefix="lead-mutations-") as folder:
        copy = Path(folder) / "lead"
        copy_checkout(copy)
        results = {}
        for mutation in chosen:
            results[mutation.name] = try_out(copy, mutation)
            print(f"{results[mutation.name]:<50} {mutation.name}", flush=True)
    if options.out:
        options.out.write_text(json.dumps({"goal": "mutations", "count": len(results), "verdicts": results}, indent=1))
    return 0 if set(results.values()) == {"caught"} else 1


def copy_checkout(target: Path) -> None:
    """Copies the checkout as it is now, without what git ignores, with a repository of its own (some tests ask git)."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, cwd=PROJECT_ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        source = PROJECT_ROOT / name
        if source.exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name, follow_symlinks=False)
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=target, check=True)


def try_out(copy: Path, mutation: Mutation) -> str:
    """Returns `caught`, or what is wrong with the mutation or its test."""
    file = copy / mutation.file
    text = file.read_text()
    if text.count(mutation.old) != 1:
        return f"NO LONGER APPLIES: found {text.count(mutation.old)} times"
    file.write_text(text.replace(mutation.old, mutation.new))
    try:
        status = run(copy, mutation.test)
    finally:
        file.write_text(text)
    if status != 1:
        return "NOT CAUGHT" if status == 0 else f"TEST DID NOT RUN (pytest exit {status})"
    return "caught" if run(copy, mutation.test) == 0 else "TEST IS RED WITHOUT THE MUTATION"


def run(copy: Path, test: str) -> int:
    """Runs one test of the copy with the copy's own packages; returns pytest's exit status."""
    folders = os.pathsep.join(str(copy / part) for part in ("tests", "operator", "trainer"))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
    environment = {**os.environ, "PYTHONPATH": folders, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
