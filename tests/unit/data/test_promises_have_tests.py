"""The document of the data path names tests that exist."""

import re
from pathlib import Path

from lead_testing import PROJECT_ROOT

DOCUMENT = PROJECT_ROOT / "trainer/lead_trainer/data/README.md"


def test_every_test_the_document_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", DOCUMENT.read_text()))
    files = Path(PROJECT_ROOT / "tests/unit").rglob("test_*.py")
    there = {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)}
    assert len(named) > 50 and named - there == set()
