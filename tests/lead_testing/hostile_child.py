"""Hostile inputs in a process of their own: a parser that crashes, hangs or takes all memory is a finding like another.

`in_child(name, seeds)` returns what `try_inputs` returns, and the seed at which the process died.
`python -m lead_testing.hostile_child NAME FIRST LAST FILE` is that process.
"""

import json
import mmap
import os
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from lead_testing import PROJECT_ROOT
from lead_testing.hostile_bytes import parsers, try_inputs

ADDRESS_SPACE = 16 << 30  # far below what a huge length asks for; of it most is torch's code
MOST_FINDINGS = 20
_NOT_YET = b"\xff" * 8
SECONDS_AN_INPUT, SECONDS_TO_START = 0.1, 300.0


def in_child(name: str, seeds: range) -> list[str]:
    """Gives a parser the input of each seed, in a process of its own; returns what went wrong."""
    wrong, begin = list[str](), seeds.start
    with TemporaryDirectory(prefix="lead-hostile-") as folder:
        at = Path(folder, "seed")
        while begin < seeds.stop:
            at.write_bytes(_NOT_YET)
            found, died = _run(name, range(begin, seeds.stop), at)
            wrong += found
            if not died:
                return wrong
            if (where := at.read_bytes()) == _NOT_YET:
                return [*wrong, f"{name}: the valid inputs: {died}"]
            seed = int.from_bytes(where, "little")
            wrong.append(f"{name} seed {seed}: {died}")
            begin = seed + 1
            if len(wrong) > MOST_FINDINGS:
                return [*wrong, f"{name}: the seeds from {begin} on were not tried"]
    return wrong


def _run(name: str, seeds: range, at: Path) -> tuple[list[str], str]:
    command = [sys.executable, "-m", "lead_testing.hostile_child", name, str(seeds.start), str(seeds.stop), str(at)]
    environ = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT / "tests"), "OMP_NUM_THREADS": "1"}
    deadline = SECONDS_TO_START + SECONDS_AN_INPUT * len(seeds)
    try:
        done = subprocess.run(
            command, cwd=PROJECT_ROOT, env=environ, capture_output=True, text=True, timeout=deadline, check=False
        )
    except subprocess.TimeoutExpired:
        return [], f"did not end within {deadline:.0f} s"
    if done.returncode:
        return [], f"the process ended with {done.returncode}: {done.stderr[-400:]}"
    return json.loads(done.stdout.splitlines()[-1]), ""


def main(name: str, first: int, last: int, at: Path) -> None:
    """Tries the inputs, with the seed in a file that survives a crash; prints what went wrong."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    parser = parsers()[name]
    for sound in parser.sound:  # what is imported at the first use is no finding
        parser.parse(sound)
    with at.open("r+b") as file, mmap.mmap(file.fileno(), 8) as seen:
        wrong = list[str]()
        for seed in range(first, last):
            seen[:] = seed.to_bytes(8, "little")
            wrong += try_inputs(name, range(seed, seed + 1))
    print(json.dumps(wrong))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
