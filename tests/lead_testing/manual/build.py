"""Builds the manual into outputs/manual: `make manual`, or `python -m lead_testing.manual.build [FOLDER]`.

Sources are written anew below FOLDER/source, so that the site never holds a page that is gone; then Sphinx reads them
and treats each warning (a link that leads nowhere, a page in no table of contents) as an error.
"""

import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import build_main

from lead_testing import PROJECT_ROOT
from lead_testing.manual.pages import fit_for_site, pages, pictures_of
from lead_testing.manual.reference import reference_pages

HOME = "charts/manual"  # the folder of the manual's own pages and of Sphinx's settings
FOLDER = PROJECT_ROOT / "outputs/manual"


def write_sources(source: Path) -> None:
    """Writes every page, its pictures and the references into a folder of their own."""
    shutil.rmtree(source, ignore_errors=True)
    known = frozenset(pages())
    for page in known:
        for path in {page, *pictures_of(page)}:
            (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / page).write_text(fit_for_site(page, known), encoding="utf-8")
        for picture in pictures_of(page):
            shutil.copyfile(PROJECT_ROOT / picture, source / picture)
    (source / "reference").mkdir()
    for name, text in reference_pages().items():
        (source / "reference" / f"{name}.md").write_text(text, encoding="utf-8")


def level_captions(site: Path) -> None:
    """Gives captions of tables of contents the level that screen readers need; Sphinx writes none."""
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace('role="heading">', 'role="heading" aria-level="2">'), encoding="utf-8")


def build(folder: Path = FOLDER) -> int:
    """Builds the site in FOLDER/site; returns the exit status of Sphinx."""
    write_sources(folder / "source")
    words = ["-b", "html", "-W", "--keep-going", "-q", "-E", "-d", str(folder / "doctrees")]
    status: int = build_main([*words, "-c", str(PROJECT_ROOT / HOME), str(folder / "source"), str(folder / "site")])
    level_captions(folder / "site")
    if status == 0:
        print(f"manual: {folder / 'site/index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(build(*map(Path, sys.argv[1:2])))
