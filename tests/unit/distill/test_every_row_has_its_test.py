"""The pages of rows are whole: each row has a test, each test is where the page says, and none of them failed."""

import pytest

from lead_testing import PROJECT_ROOT
from lead_testing.requirement_rows import RECIPES, Requirements, functions_of, rows_of, shown
from lead_testing.requirement_rows import tests_by_row as by_row  # pytest would take its own name for a test

LAST = {"distill": ("D", 50), "world": ("W", 58), "nuplan": ("N", 61)}
ROWS = {recipe: [f"{mark}-{n:02d}" for n in range(1, last + 1)] for recipe, (mark, last) in LAST.items()}

of_each_recipe = pytest.mark.parametrize("asked", RECIPES.values(), ids=RECIPES.keys())


@of_each_recipe
def test_each_row_has_a_test_or_is_listed_as_documented(asked: Requirements) -> None:
    assert list(asked.rows) == ROWS[asked.recipe]
    assert [row for row, tests in by_row(asked).items() if not tests] == list(asked.documented)


@of_each_recipe
def test_the_tests_that_other_rooms_hold_are_there(asked: Requirements) -> None:
    listed = {test for tests in asked.elsewhere.values() for test in tests}
    assert [t for t in listed if t.split("::")[1] not in functions_of(PROJECT_ROOT / t.split("::")[0])] == []


@of_each_recipe
def test_the_page_lists_every_row_with_the_tests_it_has_now_and_none_that_failed(asked: Requirements) -> None:
    rows = [
        line.removeprefix("| ") for line in asked.page.read_text().splitlines() if line[:4] in ("| D-", "| N-", "| W-")
    ]
    lines = dict(row.split(" | ", 1) for row in rows)
    assert list(lines) == list(asked.rows)
    for row, tests in by_row(asked).items():
        _, names, results = lines[row].rsplit(" | ", 2)
        expected = [shown(test) for test in tests] or [asked.documented[row]]
        assert names.split("<br>") == expected, f"{row}: run python -m lead_testing.requirement_rows {asked.recipe}"
        assert "failed" not in results


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("test_d_17_position", ["D-17"]),
        ("test_d_12_d_31_and_d_32_six", ["D-12", "D-31", "D-32"]),
        ("test_w_01_and_w_03_every", ["W-01", "W-03"]),
        ("test_d_34_to_d_37_a", ["D-34", "D-35", "D-36", "D-37"]),
        ("test_the_d_17_position", []),
    ],
)
def test_a_name_says_its_rows(name: str, rows: list[str]) -> None:
    assert rows_of(name) == rows
