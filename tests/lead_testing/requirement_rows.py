"""Which tests show each row of a recipe's requirements, and how they ended, as a page: `recipes/distill/ROWS.md`.

    python -m lead_testing.requirement_rows RECIPE [REPORT.xml …]

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
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from lead_testing import PROJECT_ROOT, distill_rows, nuplan_rows, world_rows

RINGS = ("unit", "cluster")  # where tests are named after rows; only those of the unit ring are run here
_NAMED = re.compile(r"^test((?:_(?:and_|to_)?[a-z]_\d\d)+)_")
_ROW = re.compile(r"(to_)?([a-z])_(\d\d)")

Outcomes = Mapping[str, Counter[str]]  # by test: passed, failed, skipped


@dataclass(frozen=True)
class Requirements:
    """The rows of one recipe."""

    recipe: str
    rows: Mapping[str, str]  # what is asked
    elsewhere: Mapping[str, list[str]]  # tests of other rooms, `path::name`
    documented: Mapping[str, str]  # rows without a test of their own, with what there is

    @property
    def page(self) -> Path:
        """Where the table is written."""
        return PROJECT_ROOT / f"trainer/lead_trainer/recipes/{self.recipe}/ROWS.md"


RECIPES = {
    "distill": Requirements("distill", distill_rows.ROWS, distill_rows.ELSEWHERE, {}),
    "nuplan": Requirements("nuplan", nuplan_rows.ROWS, nuplan_rows.ELSEWHERE, {}),
    "world": Requirements("world", world_rows.ROWS, world_rows.ELSEWHERE, world_rows.DOCUMENTED),
}


def rows_of(test: str) -> list[str]:
    """Returns the rows in a test's name; `d_34_to_d_37` names four."""
    found: list[str] = []
    named = _NAMED.match(test)
    for until, letter, number in _ROW.findall(named.group(1) if named else ""):
        first = int(found[-1][2:]) + 1 if until else int(number)
        found += [f"{letter.upper()}-{row:02d}" for row in range(first, int(number) + 1)]
    return found


def tests_by_row(asked: Requirements) -> dict[str, list[str]]:
    """Returns the tests of each row as `path::name`, sorted, those of other rooms behind."""
    found: dict[str, list[str]] = {row: [] for row in asked.rows}
    for ring in RINGS:
        for path in sorted((PROJECT_ROOT / "tests" / ring).rglob("test_*.py")):
            for name in functions_of(path):
                for row in rows_of(name):
                    if row in found:
                        found[row].append(f"{path.relative_to(PROJECT_ROOT)}::{name}")
    return {row: tests + asked.elsewhere.get(row, []) for row, tests in found.items()}


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


def page(asked: Requirements, outcomes: Outcomes) -> str:
    """Returns the page: a line a row, its tests one below the other, beside each how it ended."""
    lines = [
        f"# Rows of the recipe `{asked.recipe}`",
        "",
        f"Written by `python -m lead_testing.requirement_rows {asked.recipe}`, which runs the tests. A number counts a",
        "test's parameters.",
        "",
        "| row | what is asked | tests | result |",
        "|---|---|---|---|",
    ]
    for row, tests in tests_by_row(asked).items():
        names = "<br>".join(shown(test) for test in tests) or asked.documented.get(row, "")
        results = "<br>".join(told(outcomes.get(test, Counter())) for test in tests) or "no test"
        lines.append(f"| {row} | {asked.rows[row].replace('|', '/')} | {names} | {results} |")
    return "\n".join(lines) + "\n"


def shown(test: str) -> str:
    """Returns a test as the page names it: its file below `tests` and its name."""
    path, _, name = test.partition("::")
    return f"`{path.removeprefix('tests/')}` {name}"


def told(ends: Counter[str]) -> str:
    """Returns how a test ended, such as `passed 8`."""
    return ", ".join(f"{how} {count}" for how, count in sorted(ends.items())) or "not run"


def main() -> int:
    """Writes a recipe's page from the reports named on the command line, or from a run of every row's tests."""
    asked = RECIPES[sys.argv[1]]
    tests = sorted({test for tests in tests_by_row(asked).values() for test in tests if test.startswith("tests/unit/")})
    reports = [Path(word) for word in sys.argv[2:]]
    with tempfile.TemporaryDirectory() as folder:
        if not reports:
            reports = [Path(folder) / "report.xml"]
            run(tests, reports[0])
        outcomes = read(reports)
    asked.page.write_text(page(asked, outcomes), encoding="utf-8")
    print(f"{asked.page.relative_to(PROJECT_ROOT)} written")
    return 0 if all(set(outcomes.get(test, ())) <= {"passed", "skipped"} for test in tests) else 1


if __name__ == "__main__":
    sys.exit(main())
