"""The page of attacks is what the tests say, and every attack is tried by one."""

from lead_testing.audit_rows import PAGE, ROWS, named_tests, page


def test_every_attack_is_tried_by_a_test_and_no_test_names_another() -> None:
    named = {row for row, _ in named_tests()}
    assert named - set(ROWS) == set(), "rows that audit_rows.ROWS does not have"
    assert set(ROWS) - named == set(), "rows that no test tries"


def test_the_page_of_attacks_is_current() -> None:
    assert PAGE.read_text() == page(), "run `PYTHONPATH=tests .venv/bin/python -m lead_testing.audit_rows`"
