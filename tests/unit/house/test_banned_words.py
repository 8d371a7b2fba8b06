"""Pages, messages, docstrings and names use the field's words: none of a closed list of private ones.

A pattern sees the parts of names too: `tell` is found in `tell_run` and `TellRun`, not in `intelligence`. Where a
banned word is right, EXCEPTIONS has its place with the reason.
"""

import re
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch

import pytest

from lead_testing import PROJECT_ROOT

TEXTS = (".md", ".py", ".yaml", ".yml", ".tpl", ".txt", ".json", ".toml", "Makefile", "Containerfile")

BANNED = {  # words, as alternatives -> what to write
    "tell|tells|told|telling|retold|untold": "report, log, record, return, show, distinguish",
    "say|says|said|saying|unsaid": "report, state, name, set, describe",
    "speak|speaks|spoke|spoken": "use, implement (a protocol); report",
    "hear|hears|heard": "receive, observe",
    "look|looks|looked|looking(?! for| up)": "read, check, list, inspect; a look is a snapshot, a read or a pass",
    "anew": "again; recreated, rebuilt, reopened",
    "sound": "valid",
    "spoil|spoils|spoiled|spoilt": "corrupt, damaged",
    "book|books|booked": "restart state, RestartRecord; record, count",
    "word|words": "report, message, text, name, key, argument",
    "bring|brings|bringing|brought": "fetch, upload, provide, install",
    "guard|guards|guarded": "finalizer; check, protect",
    "deaf": "stalled watch",
    "doubt|doubtful": "stale; uncertain",
    "stray|strays": "orphan",
    "linger|lingers|lingering|outstay|outstays": "past its deadline, kept running",
    "disturb|disturbs|disturbed|disturbance|disturbances": "infrastructure failure; interrupt",
    "treaty": "API, contract",
    "rooms": "module, package, entry point",
    "rung|rungs|mailbox|mailboxes": "MemoryPlan, progress record",
    "thought better": "changed back",
    "the least one": "the smallest",
    "what it may have more": "optional",
}  # fmt: skip

EXCEPTIONS = {  # (path, what its line holds) -> reason
    ("*", "look for"): "what a reader does",
    ("*", "guard.go"): "the name of a file of ours",
    ("operator/lead_client/examples/optuna_sweep.py", "study.tell("): "Optuna's own name",
    ("*", "`test_"): "names of tests, which a table lists",
    ("*", "test_d_"): "names of tests, which a table lists",
    ("pyproject.toml", "ignore-words-list"): "a key of codespell",
    ("tests/README.md", "`deaf`"): "the name of a goal of the fault campaign",
    ("images/locks/*", ""): "digests",
    ("trainer/lead_trainer/recipes/distill/ROWS.md", ""): "a table of tests and the training guide's own requirements",
    ("trainer/lead_trainer/recipes/world/*", ""): "still to be edited",
    ("trainer/lead_trainer/recipes/nuplan/*", ""): "still to be edited",
    ("trainer/lead_trainer/example_worlds/*", ""): "still to be edited",
    ("trainer/lead_trainer/recipes/distill/ingest/teacher.py", "word"): "words of a text",
    ("trainer/lead_trainer/recipes/lead/*", "look"): "to look a name up",
    ("trainer/lead_trainer/metrics/offroad.py", "look"): "to look a pixel up",
    ("trainer/lead_trainer/recipes/distill/*", "look-up"): "the field's word",
}

AREAS = (
    ".github/", "CHANGELOG.md", "Makefile", "README.md", "charts/", "crds/", "images/", "operator/", "pyproject.toml",
    "tests/README.md", "tests/bench/README.md", "trainer/",
)  # fmt: skip


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.splitlines()


def split(line: str) -> str:
    """Returns a line with the words of its names apart: `tellRun` and `tell_run` as `tell Run` and `tell run`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", line).replace("_", " ")


def found(pattern: str, area: str) -> Iterator[str]:
    banned = re.compile(rf"(?<![A-Za-z])(?:{pattern})(?![A-Za-z])", re.IGNORECASE)
    for path in tracked():
        if not path.startswith(area) or not path.endswith(TEXTS):
            continue
        for number, line in enumerate((PROJECT_ROOT / path).read_text().splitlines(), 1):
            if banned.search(split(line)) and not is_excepted(path, line):
                yield f"{path}:{number}: {line.strip()[:160]}"


def is_excepted(path: str, line: str) -> bool:
    return any(fnmatch(path, where) and text in line for where, text in EXCEPTIONS)


@pytest.mark.parametrize("pattern", BANNED, ids=lambda pattern: pattern.partition("|")[0])
def test_no_banned_word_is_used(pattern: str) -> None:
    lines = [line for area in AREAS for line in found(pattern, area)]
    assert lines == [], f"write instead: {BANNED[pattern]}"
