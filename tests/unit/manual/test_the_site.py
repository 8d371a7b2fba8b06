"""The manual is one site: every page once, every link right, nothing from elsewhere, usable by everyone."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sphinx.cmd.build import build_main
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from lead_protocol.exit_codes import ExitCode
from lead_testing import PROJECT_ROOT
from lead_testing.browser import NARROW, WIDE, Browser, browser_at, served
from lead_testing.manual.build import HOME, build
from lead_testing.manual.pages import fit_for_site, pages
from lead_testing.manual.reference import reference_pages

READ_BY_EVERYONE = ("charts/manual/index", "charts/manual/your-cluster", "crds/docs/trainingrun", "reference/python")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("manual")
    assert build(folder) == 0, "a warning of Sphinx is an error: see its output"
    return folder / "site"


def test_every_page_is_in_the_table_of_contents_once(site: Path) -> None:
    entries = re.findall(r"^/?([\w./-]+)$", (PROJECT_ROOT / HOME / "index.md").read_text(), flags=re.MULTILINE)
    listed = [
        entry if "/" in entry or (PROJECT_ROOT / f"{entry}.md").exists() else f"{HOME}/{entry}" for entry in entries
    ]
    wanted = {page.removesuffix(".md") for page in pages()} - {f"{HOME}/index"}
    assert sorted(listed) == sorted(wanted | {f"reference/{name}" for name in reference_pages()})
    assert all((site / f"{entry}.html").is_file() for entry in listed)


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loads = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=\"((?:https?:)?//[^\"]+)\"")
    found = {page.name: loads.findall(page.read_text()) for page in site.rglob("*.html")}
    assert {name: links for name, links in found.items() if links} == {}
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.search(r"url\(['\"]?(?:https?:)?//", styles) and "@import" not in styles


def test_the_references_say_what_the_code_does(site: Path) -> None:
    codes = (site / "reference/exit-codes.html").read_text()
    assert all(f"<td><p>{int(code)}</p></td>" in codes and code.name in codes for code in ExitCode)
    assert "spec.failurePolicy.noProgressLimit" in (site / "reference/fields-trainingrun.html").read_text()
    assert "lead bench data" in (site / "reference/commands.html").read_text()
    assert "lead_work_queue_depth" in (site / "reference/metrics.html").read_text()


def test_a_link_to_a_file_or_a_heading_that_is_not_there_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.md").write_text("# Broken\n\n[x](no/such/file.md)\n")
    monkeypatch.setattr("lead_testing.manual.pages.PROJECT_ROOT", tmp_path)
    with pytest.raises(ValueError, match=r"broken\.md: the link 'no/such/file\.md' leads nowhere"):
        fit_for_site("broken.md", frozenset({"broken.md"}))
    (tmp_path / "broken.md").unlink()
    source = tmp_path / "charts/manual"
    source.mkdir(parents=True)
    (source / "index.md").write_text("# A\n\n[there](#b)\n\n## B\n")
    words = ["-b", "html", "-W", "-q", "-c", str(PROJECT_ROOT / HOME), str(tmp_path), str(tmp_path / "site")]
    assert build_main(words) == 0
    (source / "index.md").write_text("# A\n\n[not there](#c)\n\n## B\n")
    assert build_main(words) != 0


def test_the_pages_are_spelled_right() -> None:
    words = [sys.executable, "-m", "codespell_lib", "--toml", "pyproject.toml", *pages()]
    ended = subprocess.run(words, cwd=PROJECT_ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout


@pytest.fixture(scope="module")
def browser(site: Path) -> Iterator[Browser]:
    with (
        served(Starlette(routes=[Mount("/", StaticFiles(directory=site, html=True))])) as address,
        browser_at(address) as found,
    ):
        yield found


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_everyone_can_use_it(browser: Browser, size: tuple[int, int], dark: bool) -> None:
    browser.window(size, dark=dark)
    for page in READ_BY_EVERYONE:
        browser.open(f"/{page}.html")
        assert browser.faults_for_people() == [], page
        browser.keep(f"manual-{page.rpartition('/')[2]}-{size[0]}-{'dark' if dark else 'light'}")
        wider = browser.run("return document.documentElement.scrollWidth - window.innerWidth")
        assert wider <= 0, f"{page} is wider than the window by {wider} pixels"
    assert browser.errors() == []


def test_a_search_finds_the_page(browser: Browser) -> None:
    browser.window(WIDE)
    browser.open("/search.html?q=noProgressLimit")
    browser.wait("the results", lambda: "Fields of TrainingRun" in browser.text())
