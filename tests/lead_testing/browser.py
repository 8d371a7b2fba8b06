"""A real browser for tests of the page: Chromium, driven as WebDriver defines it; a test skips where there is none."""

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from axe_core_python.selenium import Axe
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from lead_testing import PROJECT_ROOT
from lead_testing.ports import free_port

SCREENSHOTS = Path(os.environ.get("LEAD_SCREENSHOTS", PROJECT_ROOT / "outputs/screenshots"))
WIDE, NARROW = (1280, 900), (390, 844)  # pixels of a laptop and of a telephone
PATIENCE_S = 60.0
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


class Browser:
    """One window; every page that it opens is also read for errors on its console."""

    def __init__(self, driver: webdriver.Chrome, address: str) -> None:
        self.driver, self.address = driver, address

    def open(self, path: str) -> None:
        """Opens a page of the server and waits until it is there."""
        self.driver.get(f"{self.address}{path}")

    def window(self, size: tuple[int, int], *, dark: bool = False) -> None:
        """Sets width and height in CSS pixels, and the colour scheme that the person prefers."""
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def run(self, script: str, *arguments: Any) -> Any:
        """Returns what a script returns."""
        return self.driver.execute_script(script, *arguments)

    def text(self) -> str:
        """The text that a person sees."""
        return str(self.run("return document.body.innerText"))

    def wait(self, what: str, condition: Callable[[], Any], within_s: float = PATIENCE_S) -> Any:
        """Waits until a condition holds and returns its value; fails with `what` at the deadline."""
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            if found := condition():
                return found
            time.sleep(0.05)
        raise AssertionError(f"{what}: not within {within_s:.0f} s; the page shows: {self.text()[:2000]}")

    def errors(self) -> list[str]:
        """Returns errors of scripts, of the Content-Security-Policy and of requests since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def faults_for_people(self) -> list[str]:
        """Returns what axe finds serious or critical."""
        answer = Axe().run(self.driver)
        assert len(answer["passes"]) > 5, "axe has judged the page"
        found = answer["violations"]
        return [f"{each['id']}: {[node['html'][:160] for node in each['nodes'][:3]]}"
                for each in found if each["impact"] in ("serious", "critical")]  # fmt: skip

    def keep(self, name: str) -> None:
        """Writes a screenshot."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(os.fspath(SCREENSHOTS / f"{name}.png"))


@contextmanager
def browser_at(address: str) -> Iterator[Browser]:
    """Starts a browser; skips the calling test where there is none."""
    program = next((found for name in _PROGRAMS if (found := shutil.which(name))), None)
    partner = shutil.which("chromedriver")
    if program is None or partner is None:
        pytest.skip("no Chromium with its driver is installed: apt-get install chromium chromium-driver")
    options = Options()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-proxy-server", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with webdriver.Chrome(options=options, service=Service(partner)) as chrome:
        yield Browser(chrome, address)


@contextmanager
def served(app: Any) -> Iterator[str]:
    """Serves an application on a loopback port from a thread; yields its address."""
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    end = time.monotonic() + PATIENCE_S
    while not server.started:
        assert thread.is_alive() and time.monotonic() < end, "the page does not start"
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(timeout=30)
