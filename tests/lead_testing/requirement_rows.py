"""Which tests show each row of a recipe's requirements, and how they ended, as a page: `recipes/distill/ROWS.md`.

    python -m lead_testing.requirement_rows [REPORT.xml …]

runs every listed test, or reads what pytest's `--junitxml` wrote, and writes the page. Tests say their rows by their
names: `test_d_17_…`, `test_d_12_d_31_and_d_32_…`, `test_d_34_to_d_37_…`.
"""

import ast
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from lead_testing import PROJECT_ROOT
from lead_testing.distill_rows import ELSEWHERE, ROWS

PAGE = PROJECT_ROOT / "trainer/lead_trainer/recipes/distill/ROWS.md"
RINGS = ("unit", "cluster")  # where tests are named after rows; only those of the unit ring are run here
_NAMED = re.compile(r"^test((?:_(?:and_|to_)?d_\d\d)+)_")
_ROW = re.compile(r"(to_)?d_(\d\d)")

Outcomes = Mapping[str, Counter[str]]  # by test: passed, failed, skipped


def rows_of(test: str) -> list[str]:
    """Returns the rows in a test's name; `d_34_to_d_37` names four."""
    found: list[int] = []
    named = _NAMED.match(test)
    for until, number in _ROW.findall(named.group(1) if named else ""):
        found += range(found[-1] + 1, int(number) + 1) if until else [int(number)]
    return [f"D-{number:02d}" for number in found]


def tests_by_row() -> dict[str, list[str]]:
    """Returns the tests of each row as `path::name`, sorted, those of ELSEWHERE behind."""
    found: dict[str, list[str]] = {row: [] for row in ROWS}
    for ring in RINGS:
        for path in sorted((PROJECT_ROOT / "tests" / ring).rglob("test_*.py")):
            for name in functions_of(path):
                for row in rows_of(name):
                    found[row].append(f"{path.relative_to(PROJECT_ROOT)}::{name}")
    return {row: tests + ELSEWHERE.get(row, []) for row, tests in found.items()}


def functions_of(path: Path) -> list[str]:
    """Returns the names of a module's top-level functions."""
    return [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]


def run(tests: Sequence[str], report: Path) -> None:
    """Runs tests; `report` then says how each ended."""
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *tests]
    subprocess.run(command, cwd=PROJECT_ROOT, check=False)


def read(reports: Sequence[Path]) -> Outcomes:
    """Returns how each test ended, its parameters together; of several reports the last that holds it counts."""
    outcomes: dict[str, Counter[str]] = {}
    for report in reports:
        found: dict[str, Counter[str]] = {}
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            name = f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name'].partition('[')[0]}"
            ends = {child.tag for child in case}
            how = "failed" if ends & {"failure", "error"} else "skipped" if "skipped" in ends else "passed"
            found.setdefault(name, Counter())[how] += 1
        outcomes |= found
    return outcomes


def page(outcomes: Outcomes) -> str:
    """Returns the page: a line a row, its tests one below the other, beside each how it ended."""
    lines = [
        "# Rows of the recipe `distill`",
        "",
        "Written by `python -m lead_testing.requirement_rows`, which runs the tests. A number counts a test's",
        "parameters.",
        "",
        "| row | what is asked | tests | result |",
        "|---|---|---|---|",
    ]
    for row, tests in tests_by_row().items():
        names = "<br>".join(shown(test) for test in tests)
        results = "<br>".join(told(outcomes.get(test, Counter())) for test in tests)
        lines.append(f"| {row} | {ROWS[row].replace('|', '/')} | {names} | {results} |")
    return "\n".join(lines) + "\n"


def shown(test: str) -> str:
    """Returns a test as the page names it: its file below `tests` and its name."""
    path, _, name = test.partition("::")
    return f"`{path.removeprefix('tests/')}` {name}"


def told(ends: Counter[str]) -> str:
    """Returns how a test ended, such as `passed 8`."""
    return ", ".join(f"{how} {count}" for how, count in sorted(ends.items())) or "not run"


def main() -> int:
    """Writes the page from the reports named on the command line, or from a run of every row's tests."""
    tests = sorted({test for tests in tests_by_row().values() for test in tests if test.startswith("tests/unit/")})
    reports = [Path(word) for word in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder:
        if not reports:
            reports = [Path(folder) / "report.xml"]
            run(tests, reports[0])
        outcomes = read(reports)
    PAGE.write_text(page(outcomes), encoding="utf-8")
    print(f"{PAGE.relative_to(PROJECT_ROOT)} written")
    return 0 if all(set(outcomes.get(test, ())) <= {"passed", "skipped"} for test in tests) else 1


if __name__ == "__main__":
    sys.exit(main())
