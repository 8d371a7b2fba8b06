"""The page of rows is whole: each row has a test, each test is where the page says, and none of them failed."""

import pytest

from lead_testing import PROJECT_ROOT
from lead_testing.distill_rows import ELSEWHERE, ROWS
from lead_testing.requirement_rows import PAGE, functions_of, rows_of, shown
from lead_testing.requirement_rows import tests_by_row as by_row  # pytest would take its own name for a test


def test_there_are_fifty_rows_and_each_has_a_test() -> None:
    assert list(ROWS) == [f"D-{number:02d}" for number in range(1, 51)]
    assert [row for row, tests in by_row().items() if not tests] == []


def test_the_tests_that_other_rooms_hold_are_there() -> None:
    listed = {test for tests in ELSEWHERE.values() for test in tests}
    assert [t for t in listed if t.split("::")[1] not in functions_of(PROJECT_ROOT / t.split("::")[0])] == []


def test_the_page_lists_every_row_with_the_tests_it_has_now_and_none_that_failed() -> None:
    lines = dict(line.removeprefix("| ").split(" | ", 1) for line in PAGE.read_text().splitlines() if "| D-" in line)
    assert list(lines) == list(ROWS)
    for row, tests in by_row().items():
        _, names, results = lines[row].rsplit(" | ", 2)
        assert names.split("<br>") == [shown(test) for test in tests], (
            f"{row}: run python -m lead_testing.requirement_rows"
        )
        assert "failed" not in results


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("test_d_17_position", ["D-17"]),
        ("test_d_12_d_31_and_d_32_six", ["D-12", "D-31", "D-32"]),
        ("test_d_34_to_d_37_a", ["D-34", "D-35", "D-36", "D-37"]),
        ("test_the_d_17_position", []),
    ],
)
def test_a_name_says_its_rows(name: str, rows: list[str]) -> None:
    assert rows_of(name) == rows
