"""Whatever bytes come, a parser returns or raises the error it documents: 20,000 inputs each, 2,000 of the slow ones.

The campaign's goal R14 tries ten million. A failure names parser and seed: `try_inputs(parser, range(seed, seed + 1))`.
"""

import pytest

from lead_protocol.store import s3_answers
from lead_protocol.store.object_store import StoreUnavailable
from lead_testing.hostile_bytes import parsers, try_inputs

INPUTS, OF_A_TABLE = 20_000, 2_000  # which pyarrow reads in half a millisecond


@pytest.mark.parametrize("name", sorted(name for name, parser in parsers().items() if not parser.apart))
def test_hostile_bytes_are_refused_as_documented(name: str) -> None:
    assert try_inputs(name, range(OF_A_TABLE if name.endswith("table") else INPUTS)) == []


@pytest.mark.parametrize("name", sorted(parsers()))
def test_sound_bytes_are_taken(name: str) -> None:
    parser = parsers()[name]
    for sound in parser.sound:
        try:
            parser.parse(sound)
        except s3_answers.TryAgain as error:
            assert "SlowDown" in str(error)  # what the answer says


def test_an_answer_in_an_unknown_encoding_or_with_a_size_that_is_no_number_is_told() -> None:
    strange = b'<?xml version="1.0" encoding="ETF-8"?><Error><Code>SlowDown</Code></Error>'
    assert isinstance(s3_answers.explain_failure(503, {}, strange, where="GET"), s3_answers.TryAgain)
    with pytest.raises(s3_answers.TryAgain, match="not whole XML"):
        s3_answers.parse_upload_id(strange, where="POST")
    page = b"<ListBucketResult><Contents><Key>a</Key><Size>many</Size></Contents></ListBucketResult>"
    with pytest.raises(StoreUnavailable, match="Size: found 'many'"):
        s3_answers.parse_list_page(page, where="LIST")
