"""`lead ui`: every page over runs that `lead train` made here."""

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from lead_protocol.exit_codes import ExitCode
from lead_testing.ports import free_port
from lead_testing.shown_pages import faults_of, shown
from lead_trainer.cli import main
from lead_ui.web.headers import POLICY

TABS = ("", "/timeline", "/pictures", "/checkpoints", "/conditions", "/config")
ALL = ("/runs", *(f"/runs/local/plain{tab}" for tab in TABS), "/compare?run=local/plain&run=local/resumed", "/caches",
       "/space", "/login", "/runs/local/absent", "/nothing")  # fmt: skip
MAX_PAGE_BYTES = 300_000


def rows_of(client: TestClient, query: str = "") -> list[str]:
    return [link.rsplit("/", 1)[1] for link in shown(client.get(f"/runs?{query}").text).values("a", "href")
            if re.fullmatch(r"/runs/local/[^/]+", link)]  # fmt: skip


def test_the_table_lists_every_run_below_the_folder(client: TestClient) -> None:
    assert set(rows_of(client)) == {"plain", "drawn", "resumed", "seeds", "deep--fast"}
    page = shown(client.get("/runs").text)
    assert page.text.count("Succeeded") >= 5 and "3/3" in page.text and "5 of 5 runs" in page.text


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("q=fast", ["deep--fast"]),
        ("q=PLAIN", ["plain"]),
        ("phase=Failed", []),
        ("sort=name", ["deep--fast", "drawn", "plain", "resumed", "seeds"]),
        ("sort=name&desc=1", ["seeds", "resumed", "plain", "drawn", "deep--fast"]),
        ("page=9&sort=name", ["deep--fast", "drawn", "plain", "resumed", "seeds"]),
    ],
)
def test_the_table_is_filtered_and_sorted(client: TestClient, query: str, found: list[str]) -> None:
    assert rows_of(client, query) == found


def test_a_live_table_is_answered_without_the_page_around_it(client: TestClient) -> None:
    part = client.get("/runs", headers={"HX-Request": "true"}).text
    assert "<html" not in part and shown(part).values("form", "id") == ["runs"]


def test_a_run_shows_every_tag_that_its_event_files_hold(client: TestClient, runs: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    theirs = EventAccumulator(str(runs / "plain"), size_guidance={"scalars": 0})
    theirs.Reload()
    tags = shown(client.get("/runs/local/plain").text).values("figure", "data-tag")
    assert set(tags) == set(theirs.Tags()["scalars"]) and len(tags) > 3
    answer = client.get("/runs/local/plain/curves.json", params={"tag": "epoch/loss", "marks": "true"}).json()
    chart = answer["charts"]["epoch/loss"]
    events = theirs.Scalars("epoch/loss")
    assert chart["names"] == ["train-s0"] and chart["x"] == [event.step for event in events]
    assert chart["columns"][0] == pytest.approx([event.value for event in events], rel=1e-5)
    assert {mark["kind"] for mark in answer["marks"]} == {"checkpoint"}


def test_restarts_are_marked_on_every_axis_and_stand_in_the_timeline(client: TestClient) -> None:
    for axis in ("step", "epoch", "time"):
        marks = client.get(f"/runs/local/resumed/curves.json?marks=true&axis={axis}").json()["marks"]
        assert [mark["text"] for mark in marks if mark["kind"] == "restart"] == ["train-s0, attempt 2"]
    page = shown(client.get("/runs/local/resumed/timeline").text)
    assert (
        page.text.count("train-s0 · attempt") == 2 and page.text.count("Done") == 4
    )  # in the drawing and in the table


def test_seeds_are_one_run_and_one_band(client: TestClient) -> None:
    chart = client.get("/runs/local/seeds/curves.json?tag=epoch/loss").json()["charts"]["epoch/loss"]
    assert chart["names"] == ["train-s0", "train-s1", "train-s2"]
    band = client.get("/runs/local/seeds/curves.json?tag=epoch/loss&seeds=mean").json()["charts"]["epoch/loss"]
    (name,) = band["names"]
    assert name.endswith("mean of 3")
    mean, low, high = band["columns"]
    values = [chart["columns"][3 * seed] for seed in range(3)]
    assert mean == pytest.approx([sum(each) / 3 for each in zip(*values, strict=True)], rel=1e-4)
    assert low == [min(each) for each in zip(*values, strict=True)]
    assert high == [max(each) for each in zip(*values, strict=True)]


def test_pictures_and_clips_are_served_as_they_were_written(client: TestClient) -> None:
    page = shown(client.get("/runs/local/drawn/pictures").text)
    assert sorted(page.values("figure", "data-steps")) == ["5,10,15", "5,10,15"]
    sources = page.values("img", "src")
    kinds = [client.get(source).headers["content-type"] for source in sources]
    assert sorted(kinds) == ["image/gif", "image/png"]
    base = page.values("figure", "data-base")[0]
    first, last = (client.get(f"{base}{step}").content for step in (5, 15))
    assert first.startswith(b"\x89PNG") and first != last
    assert client.get(f"{base}99").status_code == 404


def test_checkpoints_are_listed_with_the_line_that_exports_them(client: TestClient, runs: Path, tmp_path: Path) -> None:
    page = shown(client.get("/runs/local/plain/checkpoints").text)
    assert "best" in page.text and "final" in page.text and "Committed" in page.text
    lines = page.values("button", "data-copy")
    assert lines and all(line.startswith("lead export ") for line in lines)
    words = lines[0].split()[1:]
    assert words[1] == str(runs / "plain") and words[2] == "bundle"


def test_the_config_is_the_resolved_one(client: TestClient, runs: Path) -> None:
    config = json.loads((runs / "deep/fast/config.json").read_text())
    page = shown(client.get("/runs/local/deep--fast/config").text)
    assert config["lr"] == 0.2 and page.values("tr", "data-text") == [key.lower() for key in config]


def test_a_comparison_shows_what_differs_and_nothing_else(client: TestClient) -> None:
    page = shown(client.get("/compare?run=local/plain&run=local/deep--fast").text)
    rows = page.text.partition("Config differences")[2].partition("Last metrics")[0]
    assert "lr" in rows and "epochs" in rows and "validation_samples" in rows and "dropout" not in rows
    chart = client.get("/compare/curves.json?run=local/plain&run=local/deep--fast&tag=epoch/loss").json()
    assert chart["charts"]["epoch/loss"]["names"] == ["plain", "deep--fast"]
    chart = client.get("/compare/curves.json?run=local/plain&run=local/seeds&tag=epoch/loss").json()
    found = chart["charts"]["epoch/loss"]
    assert (found["colours"], found["dashes"]) == ([0, 1, 1, 1], [0, 0, 1, 2])  # as the runs above the charts
    band = client.get("/compare/curves.json?run=local/plain&run=local/seeds&tag=epoch/loss&seeds=mean").json()
    assert band["charts"]["epoch/loss"]["colours"] == [0, 1]


def test_nine_runs_are_too_many_to_compare(client: TestClient) -> None:
    query = "&".join(f"run=local/{number}" for number in range(9))
    assert client.get(f"/compare?{query}").status_code == 400


@pytest.mark.parametrize("path", ALL)
def test_every_page_is_light_and_strict(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == (404 if path in ("/runs/local/absent", "/nothing") else 200)
    assert answer.headers["content-security-policy"] == POLICY and "unsafe" not in POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert list(faults_of(answer.text)) == []
    page = shown(answer.text)
    files = [*page.values("script", "src"), *page.values("link", "href")]
    assert files and all(client.get(file).status_code == 200 for file in files)
    plain = {"Accept-Encoding": "identity"}
    size = sum(len(client.get(file, headers=plain).content) for file in (path, *files))
    assert size < MAX_PAGE_BYTES, f"{path}: {size} bytes before compression"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/runs/local/plain/nothing", 404),
        ("/runs/other/plain", 404),
        ("/runs/local/..%2f..%2fetc", 404),
        ("/runs/local/plain/curves.json?axis=sideways", 400),
        ("/runs/local/plain/curves.json?from=2&to=1", 400),
        ("/runs/local/plain/curves.json?from=a", 400),
        ("/runs/local/plain/picture?instance=train-s0&tag=no&step=5", 404),
        ("/runs/local/plain/logs", 404),
        ("/caches/local/absent", 404),
        ("/compare?run=nothing", 404),
        ("/static/../web/app.py", 404),
    ],
)
def test_what_does_not_exist_is_said_in_the_pages_own_words(client: TestClient, path: str, status: int) -> None:
    answer = client.get(path)
    assert answer.status_code == status and "Traceback" not in answer.text and "<html" in answer.text


def test_nothing_but_reading_is_answered(client: TestClient) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        for path in ("/runs", "/runs/local/plain", "/compare", "/caches", "/space"):
            assert client.request(method, path).status_code == 405


def test_a_page_that_was_asked_for_by_another_name_is_refused(client: TestClient) -> None:
    """DNS rebinding: a site whose name resolves to the loopback address reads no run."""
    assert client.get("/runs", headers={"Host": "evil.example"}).status_code == 400


def test_lead_ui_serves_a_folder_until_it_is_interrupted(runs: Path) -> None:
    port = free_port()
    words = [sys.executable, "-m", "lead_trainer", "ui", str(runs), "--port", str(port)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()  # type: ignore[union-attr]
            assert f"http://127.0.0.1:{port}/" in line
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            assert "plain" in _answer(opener, f"http://127.0.0.1:{port}/runs")
        finally:
            process.send_signal(signal.SIGINT)
    assert process.returncode in (ExitCode.DONE, -signal.SIGINT)


def _answer(opener: urllib.request.OpenerDirector, url: str) -> str:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            return str(opener.open(url, timeout=10).read().decode())
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"{url} is not served")


def test_a_folder_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["ui", str(tmp_path / "absent")]) == ExitCode.BAD_CONFIG
    assert f"ui: there is no folder {tmp_path / 'absent'}; name the logdir" in capsys.readouterr().err
