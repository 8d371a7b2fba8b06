"""The tables of the campaign are whole: no fault without a test, no test that does not exist, no mutation in vain."""

import ast
import tomllib
from typing import Any

import pytest

from campaign.mutations.table import MUTATIONS, Mutation
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
        check_there_is(f"{FOLDERS[folder]}/{file}", function)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_every_known_bad_change_still_applies(mutation: Mutation) -> None:
    assert (PROJECT_ROOT / mutation.file).read_text().count(mutation.old) == 1
    check_there_is(*mutation.test.split("::"))


def check_there_is(file: str, function: str) -> None:
    path = PROJECT_ROOT / file
    assert path.is_file(), f"{file} does not exist"
    known = {n.name for n in ast.parse(path.read_text()).body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert function in known, f"{file} has no {function}"
