"""A download that is killed by SIGKILL at any write leaves nothing under its name, and the next one is whole."""

import hashlib
import random
from pathlib import Path

import pytest

from lead_protocol.store.s3 import S3Store
from lead_protocol.store.s3_requests import READ_BYTES
from lead_protocol.store.s3_target import MIB
from lead_testing.killed_writers import count_steps, kill_at

DEATHS = 12


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_ranges_that_are_killed_side_by_side_are_never_seen(s3: S3Store, tmp_path: Path) -> None:
    data = random.Random(9).randbytes(11 * MIB)  # three ranges
    s3.put("o", data)
    sha256 = hashlib.sha256(data).hexdigest()

    def download(path: Path) -> None:
        s3.download("o", path, size=len(data), sha256=sha256)

    steps = count_steps(lambda: download(tmp_path / "clean"))
    assert {"before write_at", "after write_at", "before _sync", "before replace", "after replace"} <= set(steps)
    fewest = 2 * len(data) // READ_BYTES  # before and after each write; more where bytes come in smaller pieces
    for step in range(0, fewest, fewest // DEATHS):
        path = tmp_path / str(step) / "o"
        kill_at(lambda path=path, step=step: download(path), step)  # type: ignore[misc]
        assert not path.exists() and list(path.parent.glob("*.part"))
        download(path)
        assert path.read_bytes() == data
