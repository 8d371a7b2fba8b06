"""The table of optional parts on the page of recipes is what the contract's docstrings say."""

from lead_testing.part_table import PAGE, table, with_table


def test_the_table_of_parts_is_current() -> None:
    page = PAGE.read_text()
    assert page == with_table(page), "run `python -m lead_testing.part_table --write` with PYTHONPATH=tests"


def test_every_part_says_what_it_is() -> None:
    rows = [line.strip("|").split(" | ") for line in table().splitlines()[2:]]
    assert len(rows) > 50
    assert [part for part, _, meaning, _ in rows if len(meaning.split()) < 3] == []
