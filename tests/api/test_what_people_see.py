"""The page "what you will see" shows what kubectl shows today, in each of its nine situations."""

import pytest

from lead_testing.api_bench import Bench
from lead_testing.transcripts import PAGE, SITUATIONS, Situation, section, transcribe


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.name)
def test_kubectl_shows_what_the_page_says(bench: Bench, situation: Situation) -> None:
    assert transcribe(situation, bench) == section(PAGE.read_text(), situation)
