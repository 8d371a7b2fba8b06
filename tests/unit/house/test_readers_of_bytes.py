"""Every call that gives bytes to a parser is in `tests/READERS.md`, with limits and a test that tries hostile ones."""

import re
from pathlib import Path

from lead_testing import PROJECT_ROOT
from lead_testing.foreign_bytes.calls import calls_in

PACKAGES = ("operator", "trainer")
TABLE = PROJECT_ROOT / "tests/READERS.md"
STRANGERS = {"dataset", "weights", "config"}


def rows() -> list[list[str]]:
    """Returns the table's cells, a list a row."""
    lines = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def listed() -> dict[str, frozenset[str]]:
    """Returns the calls in the table by function."""
    return {row[0].strip("`"): frozenset(re.findall(r"`([^`]+)`", row[1])) for row in rows()}


def test_every_reader_of_bytes_is_in_the_table_and_the_table_names_no_other() -> None:
    """Audit: B1, S10"""
    found, in_table = calls_in(PROJECT_ROOT, PACKAGES), listed()
    assert found.items() - in_table.items() == set(), "readers that tests/READERS.md does not list like this"
    assert in_table.items() - found.items() == set(), "rows of tests/READERS.md that are no readers"


def test_every_row_names_limits_and_a_test_that_there_is() -> None:
    for reader, _, whose, creates, limits, test in rows():
        path, _, name = test.strip("`").partition("::")
        file = PROJECT_ROOT / "tests" / path
        assert whose and creates and limits, reader
        assert file.is_file() and f"def {name}" in file.read_text(encoding="utf-8"), f"{reader}: there is no {test}"
        if STRANGERS & set(whose.split(", ")) - {"config"}:
            assert name.startswith("test_"), f"{reader}: bytes of strangers need a test by name"


def test_a_new_reader_is_seen_whatever_it_is_called(tmp_path: Path) -> None:
    file = tmp_path / "operator/pages.py"
    file.parent.mkdir()
    file.write_text(
        "import numpy as np\nfrom json import loads as parse\nimport pickle\n\n\nclass Page:\n"
        "    def read(self, data):\n        return parse(data), np.load(data), self.model.model_validate_json(data)\n"
        "def later():\n    return pickle.Unpickler\n"
    )
    assert calls_in(tmp_path, PACKAGES) == {
        "operator/pages.py::Page.read": {"json.loads", "numpy.load", ".model_validate_json"},
        "operator/pages.py::later": {"pickle.Unpickler"},
    }
