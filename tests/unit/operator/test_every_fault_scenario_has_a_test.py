"""The table of the forty fault scenarios is whole: no number without a test, no test that does not exist."""

import ast
import tomllib
from typing import Any

import pytest

from lead_testing import PROJECT_ROOT

TABLE: dict[str, dict[str, Any]] = tomllib.loads((PROJECT_ROOT / "tests/campaign/fault_scenarios.toml").read_text())
FOLDERS = {"U": "tests/unit", "A": "tests/api", "C": "tests/cluster", "X": "tests/campaign"}


def test_all_forty_are_there() -> None:
    assert list(TABLE) == [str(number) for number in range(1, 41)]
    assert all(set(entry) <= {"fault", "tests", "open"} and entry["tests"] for entry in TABLE.values())


@pytest.mark.parametrize("number", TABLE)
def test_every_test_that_is_named_exists(number: str) -> None:
    for name in TABLE[number]["tests"]:
        folder, _, rest = name.partition("/")
        file, _, function = rest.partition("::")
        path = PROJECT_ROOT / FOLDERS[folder] / file
        assert path.is_file(), f"scenario {number}: {path} does not exist"
        known = {
            n.name for n in ast.parse(path.read_text()).body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert function in known, f"scenario {number}: {path.name} has no {function}"
