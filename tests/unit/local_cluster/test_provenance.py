"""Bills of materials and signatures of images: what is asked for, and that only bytes are signed."""

from pathlib import Path

import pytest

from lead_testing.local_cluster.errors import CannotRunHere
from lead_testing.local_cluster.home import Home
from lead_testing.local_cluster.provenance import Provenance, signing_commands, state_provenance

PIN = "sha256:" + "a" * 64


def test_nothing_is_built_or_signed_where_nothing_is_asked_for(tmp_path: Path) -> None:
    state_provenance(Home(tmp_path), Provenance.asked_by({}), {"minio": "example.com/lead/minio:1"}, plain_http=False)
    assert list(tmp_path.iterdir()) == []


def test_a_key_that_is_not_there_is_named_before_anything_is_built(tmp_path: Path) -> None:
    with pytest.raises(CannotRunHere, match=r"LEAD_COSIGN_KEY is '.*absent', which is no file"):
        Provenance.asked_by({"LEAD_COSIGN_KEY": str(tmp_path / "absent")})


def test_the_digest_is_signed_and_its_bill_of_materials_attested_and_no_public_log_hears_of_it() -> None:
    """Audit: S22"""
    reference = f"example.com/lead/minio:1@{PIN}"
    sign, attest = signing_commands(Path("k"), reference, Path("b.json"), plain_http=False)
    assert sign[-1] == attest[-1] == reference
    assert attest[attest.index("--predicate") + 1] == "b.json"
    assert all("--tlog-upload=false" in words and "--allow-http-registry" not in words for words in (sign, attest))
