"""Hostile inputs in a process of their own: a parser that crashes, hangs or takes all memory is a finding like another.

`in_child(names, seeds)` returns what `try_inputs` returns, and the seed at which the process died.
`python -m lead_testing.hostile_child NAMES FIRST LAST BEGIN FILE` is that process.
"""

import json
import mmap
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from lead_testing import PROJECT_ROOT
from lead_testing.hostile_bytes import parsers, try_inputs

ADDRESS_SPACE = 16 << 30  # far below what a huge length asks for; of it most is torch's code
MOST_FINDINGS = 20
_NOT_YET = b"\xff" * 8
SECONDS_AN_INPUT, SECONDS_TO_START = 0.1, 300.0


def in_child(names: str | Sequence[str], seeds: range) -> list[str]:
    """Gives each of the parsers the input of each seed, in a process of its own; returns what went wrong."""
    names = [names] if isinstance(names, str) else list(names)
    wrong, begin, count = list[str](), 0, len(names) * len(seeds)
    with TemporaryDirectory(prefix="lead-hostile-") as folder:
        at = Path(folder, "input")
        while begin < count:
            at.write_bytes(_NOT_YET)
            found, died = _run(names, seeds, begin, at)
            wrong += found
            if not died:
                return wrong
            if (where := at.read_bytes()) == _NOT_YET:
                return [*wrong, f"{', '.join(names)}: the valid inputs: {died}"]
            number = int.from_bytes(where, "little")
            wrong.append(f"{names[number // len(seeds)]} seed {seeds[number % len(seeds)]}: {died}")
            begin = number + 1
            if len(wrong) > MOST_FINDINGS:
                return [*wrong, f"{count - begin} inputs were not tried"]
    return wrong


def _run(names: Sequence[str], seeds: range, begin: int, at: Path) -> tuple[list[str], str]:
    work = [json.dumps(names), str(seeds.start), str(seeds.stop), str(begin), str(at)]
    command = [sys.executable, "-m", "lead_testing.hostile_child", *work]
    environ = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT / "tests"), "OMP_NUM_THREADS": "1"}
    deadline = SECONDS_TO_START + SECONDS_AN_INPUT * len(names) * len(seeds)
    try:
        done = subprocess.run(
            command, cwd=PROJECT_ROOT, env=environ, capture_output=True, text=True, timeout=deadline, check=False
        )
    except subprocess.TimeoutExpired:
        return [], f"did not end within {deadline:.0f} s"
    if done.returncode:
        return [], f"the process ended with {done.returncode}: {done.stderr[-400:]}"
    return json.loads(done.stdout.splitlines()[-1]), ""


def main(names: Sequence[str], seeds: range, begin: int, at: Path) -> None:
    """Tries the inputs, with the number of each in a file that survives a crash; prints what went wrong."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name in names:
        for sound in parsers()[name].sound:  # what is imported at the first use is no finding
            parsers()[name].parse(sound)
    with at.open("r+b") as file, mmap.mmap(file.fileno(), 8) as seen:
        wrong = list[str]()
        for number in range(begin, len(names) * len(seeds)):
            seen[:] = number.to_bytes(8, "little")
            seed = seeds[number % len(seeds)]
            wrong += try_inputs(names[number // len(seeds)], range(seed, seed + 1))
    print(json.dumps(wrong))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), range(int(sys.argv[2]), int(sys.argv[3])), int(sys.argv[4]), Path(sys.argv[5]))
