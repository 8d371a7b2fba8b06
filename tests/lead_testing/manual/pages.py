"""The repository's pages as sources of the site: the same files in the same folders, with links that it can follow.

On GitHub a page may link a folder or a file of code. In the site a link to a folder leads to its README, and one to a
file that is no page becomes its path.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import PurePosixPath

from lead_testing import PROJECT_ROOT

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
FENCE = re.compile(r"^\s*(```|~~~)")
PICTURES = (".png", ".svg", ".jpg", ".gif")


def pages() -> list[str]:
    """Returns the paths of every page that is part of the repository, or about to be, from its root."""
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(words, cwd=PROJECT_ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(path for path in set(listed.splitlines()) if (PROJECT_ROOT / path).is_file())


def fit_for_site(page: str, known: frozenset[str]) -> str:
    """Returns a page's text; `known` are the paths of all pages. Raises ValueError for a link that leads nowhere."""
    text = (PROJECT_ROOT / page).read_text(encoding="utf-8")
    return "".join(
        line if in_code else LINK.sub(lambda found: _link(page, found, known), line) for line, in_code in lines_of(text)
    )


def lines_of(text: str) -> Iterator[tuple[str, bool]]:
    """Yields each line, and whether it is part of a block of code."""
    fence = ""
    for line in text.splitlines(keepends=True):
        mark = FENCE.match(line)
        yield line, bool(fence or mark)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1] == fence:
            fence = ""


def pictures_of(page: str) -> list[str]:
    """Returns the paths of the pictures that a page shows."""
    text = (PROJECT_ROOT / page).read_text(encoding="utf-8")
    found = [match[3] for match in LINK.finditer(text) if match[3].endswith(PICTURES) and "://" not in match[3]]
    return [_resolved(page, path) for path in found]


def _link(page: str, found: re.Match[str], known: frozenset[str]) -> str:
    mark, text, target = found.groups()
    path, _, anchor = target.partition("#")
    if mark or "://" in target or target.startswith("mailto:") or not path:
        return found[0]
    where = _resolved(page, path)
    if where in known:
        return found[0]
    if (readme := f"{where}/README.md") in known:
        return f"[{text}]({path.rstrip('/')}/README.md{f'#{anchor}' if anchor else ''})"
    if not (PROJECT_ROOT / where).exists():
        raise ValueError(f"{page}: the link {target!r} leads nowhere; there is neither {where} nor {readme}")
    shown = text.strip("`")
    return f"`{where}`" if shown in (where, path, PurePosixPath(where).name) else f"{text} (`{where}`)"


def _resolved(page: str, path: str) -> str:
    parts: list[str] = []
    for part in (PurePosixPath(page).parent / path).parts:
        if part == "..":
            if not parts:
                raise ValueError(f"{page}: the link {path!r} leads out of the repository")
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)
