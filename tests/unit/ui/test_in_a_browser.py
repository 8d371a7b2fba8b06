"""Every view in a real browser, wide and narrow, light and dark: what a person sees, types and clicks."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from lead_testing.browser import NARROW, WIDE, Browser, browser_at, served
from lead_testing.toy_recipe import install_toy_recipe
from lead_ui.local_runs import LocalRuns
from lead_ui.web.access import OpenAccess
from lead_ui.web.app import create_app

VIEWS = {
    "runs": "/runs",
    "curves": "/runs/local/resumed",
    "timeline": "/runs/local/resumed/timeline",
    "pictures": "/runs/local/drawn/pictures",
    "checkpoints": "/runs/local/plain/checkpoints",
    "conditions": "/runs/local/plain/conditions",
    "config": "/runs/local/plain/config",
    "compare": "/compare?run=local/plain&run=local/deep--fast&run=local/seeds",
    "compare-none": "/compare",
    "caches": "/caches",
    "space": "/space",
    "absent": "/runs/local/absent",
}
DRAWN = "return [...document.querySelectorAll('.chart canvas')].length"


@pytest.fixture(scope="module")
def browser(runs: Path) -> Iterator[Browser]:
    app = create_app(LocalRuns(runs), OpenAccess(), ["127.0.0.1"])
    with served(app) as address, browser_at(address) as found:
        yield found


@pytest.fixture
def page(browser: Browser) -> Browser:
    browser.window(WIDE)
    browser.errors()
    return browser


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_fits_serves_everyone_and_has_no_error(browser: Browser, view: str, size: tuple[int, int]) -> None:
    for dark in (False, True):
        browser.window(size, dark=dark)
        browser.open(VIEWS[view])
        if view in ("curves", "compare"):
            browser.wait("the charts in view", lambda: browser.run(DRAWN) > 1)
        width = browser.run("return document.documentElement.scrollWidth")
        assert width <= size[0], f"the page is {width} pixels wide"
        errors = [each for each in browser.errors() if not (view == "absent" and "404" in each)]
        assert errors == []
        browser.keep(f"{view}-{size[0]}-{'dark' if dark else 'light'}")
        assert browser.faults_for_people() == []


def test_charts_follow_axis_scale_smoothing_filter_and_zoom(page: Browser) -> None:
    page.open("/runs/local/plain")
    page.wait("charts", lambda: page.run(DRAWN) > 1)
    first = "document.querySelector('.chart')"
    label = page.run(f"return {first}.querySelector('.plot').getAttribute('aria-label')")
    assert "last values: train-s0" in label
    before = page.run(f"return {first}.querySelector('canvas').toDataURL()")
    page.run("document.querySelector('[name=axis][value=epoch]').click()")
    page.wait("another axis", lambda: page.run(f"const c = {first}.querySelector('canvas'); return c && c.toDataURL()")
              not in (None, before))  # fmt: skip
    page.run("const r = document.querySelector('[name=smoothing]'); r.value = 0.6; r.dispatchEvent(new Event('input'))")
    page.run("document.querySelector('[name=log]').click()")
    search = page.driver.find_element(By.NAME, "filter")
    search.send_keys("val/")
    tags = page.run("return [...document.querySelectorAll('.chart:not([hidden])')].map((each) => each.dataset.tag)")
    assert tags and all("val/" in tag for tag in tags)
    search.clear()
    search.send_keys(Keys.SPACE, Keys.BACKSPACE)
    over = page.driver.find_element(By.CSS_SELECTOR, ".chart .u-over")
    ActionChains(page.driver).move_to_element_with_offset(over, -60, 0).click_and_hold().move_by_offset(
        90, 0
    ).release().perform()
    page.wait("the zoom", lambda: page.run("return !document.querySelector('[name=reset]').hidden"))
    page.run("document.querySelector('[name=reset]').click()")
    page.wait("all of it", lambda: page.run("return document.querySelector('[name=reset]').hidden"))
    assert page.errors() == []


def test_a_slider_goes_through_the_steps_of_a_picture_by_keyboard(page: Browser) -> None:
    page.open("/runs/local/drawn/pictures")
    slider = page.driver.find_element(By.CSS_SELECTOR, ".strip input")
    source = lambda: page.run("return document.querySelector('.strip img').src")  # noqa: E731
    assert source().endswith("step=15")
    slider.send_keys(Keys.ARROW_LEFT)
    assert source().endswith("step=10")
    page.wait(
        "the picture",
        lambda: page.run("const i = document.querySelector('.strip img'); return i.complete && i.naturalWidth"),
    )
    slider.send_keys(Keys.HOME)
    assert source().endswith("step=5") and page.errors() == []


def test_marked_runs_stay_marked_while_the_table_lives_and_are_compared(page: Browser) -> None:
    page.open("/runs")
    page.run("window.mine = document.querySelector('#runs')")
    for name in ("plain", "seeds"):
        page.driver.find_element(By.CSS_SELECTOR, f"input[value='local/{name}']").click()
    page.wait("the table to be replaced", lambda: page.run("return window.mine !== document.querySelector('#runs')"))
    marked = "return [...document.querySelectorAll('input[name=run]:checked')].map((each) => each.value).sort()"
    assert page.run(marked) == ["local/plain", "local/seeds"]
    page.driver.find_element(By.XPATH, "//button[text()='Compare selected']").click()
    page.wait("the comparison", lambda: "Config differences" in page.text())
    assert {"plain", "seeds"} <= set(page.text().split()) and page.errors() == []


def test_what_is_typed_filters_the_table_at_once(page: Browser) -> None:
    page.open("/runs")
    page.driver.find_element(By.NAME, "q").send_keys("fast")
    page.wait("the filter", lambda: "1 of 5 runs" in page.text())
    assert "q=fast" in page.driver.current_url
    page.driver.find_element(By.NAME, "q").clear()
    page.driver.find_element(By.NAME, "q").send_keys("nothing like it")
    page.wait("nothing", lambda: "None of 5 runs matches" in page.text())


def test_a_page_is_used_by_keyboard_alone(page: Browser) -> None:
    page.open("/runs")
    body = page.driver.find_element(By.TAG_NAME, "body")
    body.send_keys(Keys.TAB)
    assert page.run("return document.activeElement.textContent") == "Skip to content"
    page.driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert page.run("return document.activeElement.id") == "content"
    for _ in range(40):
        page.driver.switch_to.active_element.send_keys(Keys.TAB)
        if page.run("return document.activeElement.getAttribute('href')") == "/runs/local/plain":
            break
    outline = page.run("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none", "the focus is seen"
    page.driver.switch_to.active_element.send_keys(Keys.ENTER)
    page.wait("the run", lambda: page.driver.current_url.endswith("/runs/local/plain"))


def test_a_run_that_is_killed_while_watched_shows_it_within_five_seconds(tmp_path: Path) -> None:
    site = install_toy_recipe(tmp_path / "site")
    environment = {**os.environ, "PYTHONPATH": f"{site}:{os.environ.get('PYTHONPATH', '')}"}
    words = [
        sys.executable,
        "-m",
        "lead_trainer",
        "train",
        "recipe=toy",
        f"logdir={tmp_path / 'runs/live'}",
        "epochs=100000",
    ]
    app = create_app(LocalRuns(tmp_path / "runs"), OpenAccess(), ["127.0.0.1"])
    (tmp_path / "runs").mkdir()
    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            with served(app) as address, browser_at(address) as page:
                page.open("/runs")
                page.wait("the run in the table", lambda: "Running" in page.text())
                page.open("/runs/local/live")
                page.wait("the run", lambda: "Running" in page.text() and "/100000" in page.text())
                page.keep("watched-running")
                process.send_signal(signal.SIGKILL)
                killed = time.monotonic()
                page.wait("its end", lambda: "Interrupted" in page.text())
                assert time.monotonic() - killed < 5
                page.keep("watched-interrupted")
        finally:
            process.kill()
