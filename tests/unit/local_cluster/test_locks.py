"""What is locked is what pyproject.toml asks for, with hashes, and the same in every lock."""

import re

import pytest
from packaging.requirements import Requirement

from lead_testing.locks import LOCKS, pinned, requirements

NAMES = list(requirements())


def lock(name: str) -> str:
    return (LOCKS / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_every_requirement_of_pyproject_is_locked_in_a_version_it_allows(name: str) -> None:
    """Audit: S22"""
    found = pinned(lock(name))
    for line in requirements()[name]:
        wanted = Requirement(line)
        versions = found.get(wanted.name.lower().replace("_", "-"), set())
        assert versions, f"{line}: not in images/locks/{name}.txt; run `make lock`"
        assert all(wanted.specifier.contains(version) for version in versions), f"{line}: {versions}; run `make lock`"


@pytest.mark.parametrize("name", NAMES)
def test_every_package_is_pinned_by_version_and_hash_and_no_index_is_named(name: str) -> None:
    """Audit: S22"""
    text = lock(name)
    entries = re.split(r"\n(?=\S)", text.strip())
    assert entries
    for entry in entries:
        assert re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*==\S+", entry), entry[:80]
        assert "--hash=sha256:" in entry, entry[:80]
    assert "://" not in text


@pytest.mark.parametrize("name", [name for name in NAMES if name != "all"])
def test_images_hold_what_the_tests_ran_on(name: str) -> None:
    every = pinned(lock("all"))
    assert {package: versions for package, versions in pinned(lock(name)).items() if versions - every[package]} == {}
