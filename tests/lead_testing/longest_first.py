"""In which order a ring's files begin: those that take minutes first; no worker waits for one in the end."""

from collections.abc import Sequence

import pytest


def put_longest_first(items: list[pytest.Item], files: Sequence[str]) -> None:
    """Puts the tests of `files`, by the files' names without .py, before all others, which keep their order."""
    items.sort(key=lambda item: (*files, item.path.stem).index(item.path.stem))
