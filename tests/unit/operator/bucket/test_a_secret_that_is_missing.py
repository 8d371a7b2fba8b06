"""A storage profile without its Secret: the message names what to create, and where."""

from dataclasses import replace
from pathlib import Path

import pytest

from lead_operator.bucket.profile_store import open_profile_store
from lead_protocol.store.object_store import StoreError
from lead_testing.makers import PROFILE, SETTINGS

KNOWN = replace(PROFILE, operator_secret="lead-system/lead-s3-deletes")


@pytest.mark.parametrize("there", [(), ("access-key",), ("secret-key",)])
def test_it_is_named_with_its_keys_and_its_namespace(tmp_path: Path, there: tuple[str, ...]) -> None:
    folder = tmp_path / KNOWN.name
    folder.mkdir()
    for key in there:
        (folder / key).write_text("x")
    with pytest.raises(StoreError) as refused:
        open_profile_store(KNOWN, replace(SETTINGS, credentials_dir=tmp_path))
    said = str(refused.value)
    assert "Secret lead-s3-deletes in namespace lead-system" in said and str(tmp_path) not in said
    assert all(f"no key {key}" in said for key in {"access-key", "secret-key"} - {*there})
