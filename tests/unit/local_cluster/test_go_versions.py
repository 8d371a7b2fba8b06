"""Which Go builds the cluster's programs: said before the first build, not by its log."""

import os
from pathlib import Path

import pytest

from lead_testing.local_cluster import Home
from lead_testing.local_cluster.binaries import (
    PROGRAMS,
    PROVENANCE_PROGRAMS,
    GoVersions,
    ensure_programs,
    observe_go,
    what_go_lacks,
)
from lead_testing.local_cluster.errors import CannotRunHere


@pytest.fixture
def old_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (go := tmp_path / "path" / "go").parent.mkdir()
    go.write_text("#!/bin/sh\necho go version go1.19.8 linux/amd64\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(go.parent), prepend=os.pathsep)


@pytest.mark.usefixtures("old_go")
def test_an_old_go_is_named_with_the_one_wanted_before_anything_is_built(tmp_path: Path) -> None:
    with pytest.raises(CannotRunHere, match=r"takes Go 1\.\d+\.\d+ or newer and `go` here is 1\.19\.8"):
        ensure_programs(Home(tmp_path), ["helm", "minio"])


@pytest.mark.usefixtures("old_go")
def test_the_newest_of_all_modules_decides_and_what_is_built_asks_for_nothing(tmp_path: Path) -> None:
    minio, helm = (observe_go(Home(tmp_path), [name]).wanted for name in ("minio", "helm"))
    assert observe_go(Home(tmp_path), ["helm", "minio"]).wanted == minio != helm
    assert observe_go(Home(tmp_path), PROGRAMS).wanted == observe_go(Home(tmp_path), PROVENANCE_PROGRAMS).wanted
    assert observe_go(Home(tmp_path), []) == GoVersions("", "")


@pytest.mark.parametrize(
    ("wanted", "found", "enough"),
    [("1.25.0", "1.25.0", True), ("1.25.0", "1.100", True), ("1.25.0", "1.9.9", False), ("", "", True)],
)
def test_versions_are_compared_by_their_numbers(wanted: str, found: str, enough: bool) -> None:
    assert (what_go_lacks(GoVersions(wanted, found)) == "") is enough
