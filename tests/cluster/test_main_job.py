"""The main job on a dataset this project did not write, and the same job through kills."""

import http.client
import json
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pytest
from pyarrow import parquet
from selenium.webdriver.common.by import By

from lead_protocol.object_keys import CacheKeys, RunKeys
from lead_testing import shared_dir
from lead_testing.browser import NARROW, WIDE, Browser, browser_at
from lead_testing.installed import Installed, conditions, upload_tree
from lead_testing.live_runs import epoch_of, keys_of, kill_a_rank, newest_manifest
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.statuses import newest_entry

PREFIX = "datasets/golden"
PRETRAIN = {"name": "pretrain", "epochs": 4}
PRETRAIN_THEN_POSTTRAIN = [
    PRETRAIN,
    {
        "name": "posttrain",
        "epochs": 2,
        "initFrom": {"stage": "pretrain"},
        "config": {"use_planning_decoder": True},
    },
]


@pytest.fixture(scope="module")
def golden_cache(installed: Installed, lead_tree: Path) -> dict[str, Any]:
    """A DatasetCache of the tree, Ready; returns its status."""
    with installed.store() as store:
        upload_tree(store, lead_tree, PREFIX)
    installed.apply(a_dataset_cache("golden", PREFIX))
    return installed.wait_for_phase("datasetcache", "golden", "Ready")


def test_kept_routes_and_samples_equal_leads_own(installed: Installed, golden_cache: dict[str, Any]) -> None:
    golden = json.loads((shared_dir() / "golden/lead_data/buckets.json").read_text())
    keys = CacheKeys(installed.namespace, golden_cache["digest"])
    with installed.store() as store:
        routes = parquet.read_table(arrow.BufferReader(store.get(keys.routes, max_bytes=2**24))).to_pylist()
        kept = {row["route"].removeprefix("data/") for row in routes if row["kept"]}
        assert kept == {f"{route['scenario']}/{route['route']}" for route in golden["routes"] if route["kept"]}
        for name in ("full_pretrain", "full_posttrain"):
            table = parquet.read_table(arrow.BufferReader(store.get(keys.bucket(name), max_bytes=2**24))).to_pylist()
            rows = [(row["route"].removeprefix("data/"), row["frame"]) for row in table]
            assert rows == golden_rows(golden["collections"][name])


@pytest.fixture(scope="module")
def two_stages(installed: Installed, golden_cache: dict[str, Any]) -> dict[str, Any]:
    """The status of a run of both stages over two pods, after its end."""
    installed.apply_anew(a_training_run("two-stages", "golden", stages=PRETRAIN_THEN_POSTTRAIN))
    return installed.wait_for_phase("trainingrun", "two-stages", "Succeeded", deadline_s=600)


def test_a_two_stage_run_over_two_pods_succeeds(installed: Installed, two_stages: dict[str, Any]) -> None:
    assert [(s["name"], s["phase"], s["progress"]["epoch"]) for s in two_stages["stages"]] == [
        ("pretrain", "Succeeded", 4),
        ("posttrain", "Succeeded", 2),
    ]
    assert two_stages["restarts"]["total"] == 0
    with installed.store() as store:
        files = newest_manifest(store, installed, "two-stages", "posttrain")["files"]
    assert {"config.json", "model_0001.pth", "optimizer_0001.pth", "scheduler_0001.pth", "scaler_0001.pth"} <= set(
        files
    )
    assert "gradient_steps_skipped_0001.txt" in files


def test_the_page_shows_the_run_to_those_who_may_see_it(installed: Installed, two_stages: dict[str, Any]) -> None:
    run, cache = f"/runs/{installed.namespace}/two-stages", f"/caches/{installed.namespace}/golden"
    with installed.port_forward("svc/lead-ui", 80) as port:
        viewer, nobody = (installed.token(name) for name in ("viewer", "nobody"))
        installed.grant("viewer", "view")
        assert (page(port, run)[0], page(port, run, nobody)[0]) == (401, 404)
        installed.wait_for("the right", lambda: page(port, run, viewer)[0] == 200, deadline_s=120)
        assert "two-stages" in page(port, "/runs", viewer)[1] and "Succeeded" in page(port, run, viewer)[1]
        answer = json.loads(page(port, f"{run}/curves.json?tag=epoch/loss&marks=true", viewer)[1])
        chart = answer["charts"]["epoch/loss"]
        assert chart["names"] == ["pretrain-s0", "posttrain-s0"] and len(chart["x"]) == 6
        assert {"stage", "checkpoint"} <= {mark["kind"] for mark in answer["marks"]}
        assert f"{RunKeys(installed.namespace, uid_of(installed)).prefix}posttrain-s0" in page(
            port, f"{run}/checkpoints", viewer)[1]  # fmt: skip
        assert "full_pretrain" in page(port, cache, viewer)[1]
        assert "golden" in page(port, "/space", viewer)[1] and "two-stages" in page(port, "/space", viewer)[1]
        with browser_at(f"http://127.0.0.1:{port}") as browser:
            watch(browser, viewer, run, cache)


def watch(browser: Browser, token: str, run: str, cache: str) -> None:
    """Signs in as a person does, and goes through every view, wide and narrow."""
    browser.open(run)
    browser.driver.find_element(By.ID, "token").send_keys(token)
    browser.driver.find_element(By.XPATH, "//button[text()='Sign in']").click()
    browser.wait("the run", lambda: "Succeeded" in browser.text() and "Sign out" in browser.text())
    browser.errors()
    views = {
        "runs": "/runs",
        "curves": run,
        "cache": cache,
        "space": "/space",
        "compare": f"/compare?run={run[6:]}",
        **{tab: f"{run}/{tab}" for tab in ("timeline", "pictures", "checkpoints", "conditions", "config", "logs")},
    }
    for size in (WIDE, NARROW):
        browser.window(size)
        for name, path in views.items():
            browser.open(path)
            if name in ("curves", "compare"):
                browser.wait("charts", lambda: browser.run("return document.querySelectorAll('.chart canvas').length"))
            browser.keep(f"cluster-{name}-{size[0]}")
            assert browser.run("return document.documentElement.scrollWidth") <= size[0], name
            assert browser.errors() == [] and browser.faults_for_people() == [], name


def uid_of(installed: Installed) -> str:
    return str(installed.get("trainingrun", "two-stages")["metadata"]["uid"])


def page(port: int, path: str, token: str = "") -> tuple[int, str]:
    """Returns status and text of the page's answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_a_killed_rank_and_a_killed_operator_change_nothing_but_the_restart_count(
    installed: Installed, two_stages: dict[str, Any]
) -> None:
    installed.apply_anew(a_training_run("disturbed", "golden", stages=[PRETRAIN]))
    installed.wait_for("an epoch", lambda: epoch_of(installed, "disturbed") >= 1, deadline_s=600)
    kill_a_rank(installed, "disturbed", rank=1)
    installed.run(
        "kubectl", "delete", "pod", "-l", "app.kubernetes.io/component=operator", "--grace-period=0", "--force"
    )
    status = installed.wait_for_phase("trainingrun", "disturbed", "Succeeded", deadline_s=600)

    assert status["restarts"]["total"] == 1, conditions(status)
    assert status["stages"][0]["attempt"] == 2
    with installed.store() as store:
        expected = newest_manifest(store, installed, "two-stages", "pretrain")
        actual = newest_manifest(store, installed, "disturbed", "pretrain")
    assert actual["parameters_sha256"] == expected["parameters_sha256"]
    assert actual["files"]["model_0003.pth"]["sha256"] == expected["files"]["model_0003.pth"]["sha256"]


def test_a_suspended_run_commits_and_goes_on(installed: Installed, golden_cache: dict[str, Any]) -> None:
    installed.apply_anew(a_training_run("paused", "golden", nodes=1, stages=[{"name": "pretrain", "epochs": 6}]))
    installed.wait_for("the first epoch", lambda: epoch_of(installed, "paused") >= 1, deadline_s=600)
    installed.kubectl("patch", "trainingrun", "paused", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    suspended = installed.wait_for_phase("trainingrun", "paused", "Suspended")
    live = [p for p in installed.items("pods", "lead.dev/run=paused") if p["status"]["phase"] in ("Pending", "Running")]
    assert live == []
    assert newest_entry(suspended)["checkpoint"]["epoch"] >= 1
    installed.kubectl("patch", "trainingrun", "paused", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    status = installed.wait_for_phase("trainingrun", "paused", "Succeeded", deadline_s=600)
    assert status["restarts"]["total"] == 0


@pytest.fixture(scope="module")
def short_lived(installed: Installed, golden_cache: dict[str, Any]) -> str:
    """The name of a run that trains."""
    installed.apply_anew(
        a_training_run("short-lived", "golden", nodes=1, stages=[{"name": "pretrain", "epochs": 1000}])
    )
    installed.wait_for("a checkpoint", lambda: epoch_of(installed, "short-lived") >= 1, deadline_s=600)
    return "short-lived"


def test_training_pods_hold_no_kubernetes_credential(installed: Installed, short_lived: str) -> None:
    (pod,) = installed.items("pods", f"lead.dev/run={short_lived}")
    mounts = [m["mountPath"] for c in pod["spec"]["containers"] for m in c["volumeMounts"]]
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert not [path for path in mounts if "serviceaccount" in path]


def test_deleting_a_run_removes_its_pods_and_keeps_its_checkpoints(installed: Installed, short_lived: str) -> None:
    keys = keys_of(installed, short_lived, "pretrain")
    installed.kubectl("delete", "trainingrun", short_lived, "--wait")
    installed.wait_for("no pod left", lambda: not installed.items("pods", f"lead.dev/run={short_lived}"))
    with installed.store() as store:
        assert list(store.list(keys.manifests_prefix))


def golden_rows(collection: dict[str, Any]) -> list[tuple[str, int]]:
    """Returns (scenario/route, frame) of a reference collection in LEAD's order."""
    rows = []
    for bucket in collection["buckets"]:
        routes = ["/".join(route) for route in bucket["route_table"]]
        rows += [(routes[route], frame) for route, frame, _ in bucket["rows"]]
    return rows
