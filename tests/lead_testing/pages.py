"""The pages for people, and the commands that stand in them; for tests that try them."""

import re
from collections.abc import Iterator
from pathlib import Path

from lead_testing import PROJECT_ROOT

_ROOMS = ("charts", "crds", "images", "operator", "trainer")
PAGES = sorted([PROJECT_ROOT / "README.md", *(page for room in _ROOMS for page in (PROJECT_ROOT / room).rglob("*.md"))])


def commands(page: Path, program: str) -> Iterator[str]:
    """Yields the lines of a page's code blocks that start with a program, without a prompt; continued lines joined."""
    for block in page.read_text().split("\n```")[1::2]:
        for line in block.partition("\n")[2].replace("\\\n", " ").splitlines():
            if (found := line.removeprefix("$ ")).startswith(f"{program} "):
                yield found


def watches(text: str) -> set[tuple[str, ...]]:
    """Returns the words behind `kubectl` of each watch that a text advises, without its namespace."""
    found = re.findall(r"kubectl (?:-n \S+ )?(get [^\n`#]*?(?:--watch|-w))\b", text)
    return {tuple(command.split()) for command in found}
