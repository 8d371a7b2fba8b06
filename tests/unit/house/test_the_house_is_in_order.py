"""Rules we care about, as tests: layers, lint, types, and that the text speaks of the project alone."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from lead_testing import PROJECT_ROOT

BIN = Path(sys.executable).parent


def run(*command: str) -> str:
    done = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def tracked_files() -> list[Path]:
    listing = subprocess.run(["git", "ls-files"], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True).stdout
    return [PROJECT_ROOT / name for name in listing.splitlines() if (PROJECT_ROOT / name).is_file()]


def test_import_contracts_hold() -> None:
    run(str(BIN / "lint-imports"), "--config", "pyproject.toml")


def test_ruff_finds_nothing() -> None:
    run(str(BIN / "ruff"), "check", ".")


def test_code_is_formatted() -> None:
    run(str(BIN / "ruff"), "format", "--check", ".")


def test_types_hold() -> None:
    run(str(BIN / "mypy"), "operator", "trainer", "tests/lead_testing")


def test_every_process_finds_the_same_tests_also_where_the_reference_values_are_absent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LEAD_REFERENCE", "/absent")
    found = []
    for seed in ("1", "2"):  # of the order in sets: with other names or another order pytest-xdist runs nothing
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        shown = run(str(BIN / "pytest"), "--collect-only", "-q", "-p", "no:cacheprovider", "tests")
        found.append([line for line in shown.splitlines() if "::" in line])
    assert found[0] and found[0] == found[1]


def test_operator_folder_does_not_shadow_the_standard_library() -> None:
    assert not (PROJECT_ROOT / "operator/__init__.py").exists()
    assert not (PROJECT_ROOT / "trainer/__init__.py").exists()


def test_top_level_holds_only_the_agreed_names() -> None:
    allowed = {
        "operator",
        "trainer",
        "charts",
        "crds",
        "images",
        "tests",
        "pyproject.toml",
        "README.md",
        "Makefile",
        "LICENSE",
    }
    names = {path.relative_to(PROJECT_ROOT).parts[0] for path in tracked_files()}
    assert {name for name in names if not name.startswith(".")} - allowed - {"CHANGELOG.md"} == set()


def test_nothing_is_unpickled() -> None:
    """Raw pickles are read by an interpreter of our own, torch's files as weights only.

    Audit: B1
    """
    call = re.compile(r"\bpickle\.loads?\(|\b_?Unpickler\b|allow_pickle=True|weights_only=False")
    found = [
        f"{path.relative_to(PROJECT_ROOT)}: {match.group(0)}"
        for path in tracked_files()
        if path.suffix == ".py" and "tests" not in path.relative_to(PROJECT_ROOT).parts
        for match in call.finditer(path.read_text())
    ]
    assert found == []
