"""Debian's packages: which are installed for what, and that none of their services starts, now or later."""

from pathlib import Path

import pytest

from lead_testing import rings
from lead_testing.local_cluster import Home, images, packages
from lead_testing.local_cluster.errors import CannotRunHere
from lead_testing.local_cluster.packages import ensure_packages

LACKING = {"no-such-program": "no-such-package"}


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(packages, "POLICY", tmp_path / "policy-rc.d")
    monkeypatch.setattr(packages, "_can_install", lambda: True)
    return tmp_path / "policy-rc.d"


@pytest.fixture
def killed_install(monkeypatch: pytest.MonkeyPatch, policy: Path) -> bytes:
    """Returns the policy that an install leaves which is killed while apt-get runs."""
    seen = []
    monkeypatch.setattr(packages, "run_download", lambda *words, **options: seen.append(policy.read_bytes()))
    ensure_packages(Home(policy.parent), LACKING)
    policy.write_bytes(seen[0])
    return seen[0]


def test_services_are_kept_from_starting_only_while_packages_are_installed(policy: Path, killed_install: bytes) -> None:
    assert killed_install.endswith(b"\nexit 101\n")
    ensure_packages(Home(policy.parent), LACKING)
    assert not policy.exists()


@pytest.mark.usefixtures("killed_install")
def test_what_a_killed_install_left_is_removed_where_nothing_is_missing_any_more(policy: Path) -> None:
    ensure_packages(Home(policy.parent), {})
    assert not policy.exists()


def test_a_policy_of_the_machines_own_stays(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "run_download", lambda *words, **options: None)
    policy.write_text("#!/bin/sh\nexit 101\n")
    ensure_packages(Home(policy.parent), LACKING)
    assert policy.read_text() == "#!/bin/sh\nexit 101\n"


def test_who_cannot_install_packages_is_told_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_can_install", lambda: False)
    with pytest.raises(
        CannotRunHere, match=r"^Debian's no-such-package must be installed, which takes root and apt-get"
    ):
        ensure_packages(Home(tmp_path), LACKING)
    ensure_packages(Home(tmp_path), {"python3": "python3"})


@pytest.mark.parametrize("ring", ["chart", "api"])
def test_a_ring_that_starts_an_api_server_has_what_starts_it_installed(
    ring: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a fresh machine these rings come before the one that installs all that a cluster takes."""
    asked: list[str] = []
    monkeypatch.setenv("LEAD_HOME", str(tmp_path))
    monkeypatch.setattr(rings, "ensure_packages", lambda home, wanted: asked.extend(wanted.values()))
    monkeypatch.setattr(rings, "ensure_programs", lambda home, wanted: asked.extend(wanted))
    with rings.servers_of(ring):
        assert {"etcd-server", "openssl", "kube-apiserver", "kubectl"} <= set(asked)


@pytest.mark.parametrize(("plain_http", "asks_elsewhere"), [(True, False), (False, True)])
def test_what_asks_a_registry_elsewhere_is_installed_before_it_is_asked(
    plain_http: bool, asks_elsewhere: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed: dict[str, str] = {}
    monkeypatch.setattr(images, "ensure_packages", lambda home, wanted: installed.update(wanted))
    monkeypatch.setattr(images, "_build_all", lambda *words: {})
    images.build_by_buildah(Home(tmp_path), registry="registry.example", plain_http=plain_http)
    assert ("skopeo" in installed) is asks_elsewhere
