"""Edits, deletions, limits, upgrades and rotated keys in the middle of a run."""

import json
import time
from pathlib import Path
from typing import Any

from lead_testing.api_bench import Bench, add_node
from lead_testing.figures import record
from lead_testing.kube_faults.truth import Truth
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.minio_server import ROOT_PASSWORD
from lead_testing.operator_process import wait_for
from lead_testing.pod_driver import Exit
from lead_testing.store_proxy import StoreProxy


def train(bench: Bench, name: str = "drive", **spec: Any) -> None:
    """Brings a run to Running, where it stays."""
    bench.driver.script.held.add("pretrain")
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run(name, "town", **spec))
    bench.wait_phase("trun", name, "Running")


def finish(bench: Bench, name: str = "drive") -> dict[str, object]:
    """Lets the run go on to its end; returns its status."""
    bench.driver.script.held.clear()
    return bench.wait_phase("trun", name, "Succeeded", "Failed")


def test_suspend_toggled_ten_times_ends_as_it_was_left(bench: Bench) -> None:
    train(bench)
    with Truth(bench.plane.kubeconfig, bench.namespace) as truth:
        for turn in range(10):
            patch = json.dumps({"spec": {"suspend": turn % 2 == 0}})
            bench.kubectl("patch", "trun", "drive", "--type=merge", "-p", patch)
        done = finish(bench)
    assert (done["phase"], truth.violations) == ("Succeeded", [])
    assert done["restarts"]["program"] + done["restarts"]["infrastructure"] == 0  # type: ignore[index]


def test_the_longest_name_works(bench: Bench) -> None:
    name = "n" * 63
    train(bench, name)
    assert finish(bench, name)["phase"] == "Succeeded"
    assert all(len(p["metadata"]["name"]) <= 63 for p in bench.driver.seen.values())


def test_a_limit_range_that_refuses_pods_is_told_and_the_run_goes_on_without_it(bench: Bench) -> None:
    limit = {"type": "Container", "max": {"memory": "1Mi"}}
    bench.apply({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "tiny"}, "spec": {"limits": [limit]}})
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town"))
    wait_for("the refusal", lambda: bench.status("dsc", "town").get("reason") == "ObjectsRefused")
    assert "maximum memory usage per Container" in json.dumps(bench.status("dsc", "town")["conditions"])
    bench.kubectl("delete", "limitrange", "tiny")
    assert bench.wait_phase("trun", "drive", "Succeeded", "Failed")["phase"] == "Succeeded"


def test_a_run_deleted_while_the_operator_is_down_has_nothing_made_for_it(bench: Bench) -> None:
    train(bench, sessionCache={"medium": "PersistentVolume", "sizeLimit": "1Gi"})
    run = bench.get("trun", "drive")["metadata"]
    owned = [child for kind in ("pod", "service", "pvc") for child in bench.items(kind) if is_part_of(child, "drive")]
    assert "finalizers" not in run, "a run goes at once, with nobody there"
    assert len(owned) == 2 + 1 + 2
    for child in owned:  # by this the garbage collector takes it along, with nobody there
        (reference,) = child["metadata"]["ownerReferences"]
        assert (reference["uid"], reference["controller"]) == (run["uid"], True)
    bench.operator.kill()
    asked = time.monotonic()
    bench.kubectl("delete", "trun", "drive", "--wait=true", "--timeout=10s")
    record("deleted_s", time.monotonic() - asked)
    bench.operator.start()
    wait_for("the operator", lambda: bench.operator.metric("lead_leader") == 1)
    wait_for("the cache to be free", lambda: not bench.status("dsc", "town").get("usedBy"))
    assert [p["metadata"]["name"] for p in bench.driver.seen.values() if "-a2-" in p["metadata"]["name"]] == []


def is_part_of(child: dict[str, Any], run: str) -> bool:
    return str(child["metadata"]["name"]).startswith(run)


def test_a_run_goes_on_without_an_operator_and_the_next_one_takes_it_as_it_is(bench: Bench) -> None:
    train(bench)
    trainers = {pod["metadata"]["uid"] for pod in bench.pods()}
    assert bench.operator.terminate() == 0  # as an uninstall does
    bench.driver.script.held.clear()
    wait_for("the pods to end", lambda: all(pod["status"]["phase"] == "Succeeded" for pod in bench.pods()))
    assert bench.status("trun", "drive")["phase"] == "Running", "nobody tells"
    bench.operator.start()
    done = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
    assert (done["phase"], done["restarts"]["total"], done["stages"][0]["attempt"]) == ("Succeeded", 0, 1)
    assert {pod["metadata"]["uid"] for pod in bench.pods()} == trainers


def test_a_run_that_is_being_deleted_gets_no_new_attempt(bench: Bench) -> None:
    train(bench)
    for policy in ("foreground", "orphan"):  # nobody collects here, so the object stays in deletion
        bench.kubectl("delete", "trun", "drive", f"--cascade={policy}", "--wait=false")
    bench.kubectl("delete", "pod", "drive-pretrain-s0-a1-1", "--grace-period=0", "--force")
    passes = bench.operator.metric("lead_reconcile_duration_seconds_count", kind="TrainingRun")
    done = "lead_reconcile_duration_seconds_count"
    wait_for("a look at it", lambda: bench.operator.metric(done, kind="TrainingRun") > passes)
    assert len(bench.pods()) == 1
    bench.kubectl("patch", "trun", "drive", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    wait_for("the run to be gone", lambda: not bench.get("trun", "drive"))


def test_a_namespace_that_is_being_deleted_is_no_hot_loop(bench: Bench) -> None:
    bench.driver.script.held.add("pretrain")
    train(bench)
    bench.plane.kubectl("delete", "namespace", bench.namespace, "--wait=false")
    bench.kubectl("delete", "pod", "drive-pretrain-s0-a1-1", "--grace-period=0", "--force")
    pauses = wait_for("refusals", lambda: len(bench.operator.pauses()) >= 4 and bench.operator.pauses())
    assert max(pauses) > 3 * pauses[0], "the pause between tries grows"
    assert bench.operator.page("healthz") == (200, "ok")
    bench.kubectl("delete", "trun,dsc,pod,svc", "--all", "--grace-period=0", "--force")
    wait_for("nothing more to do", lambda: bench.operator.metric("lead_resources", kind="TrainingRun") == 0)


def test_an_upgraded_operator_restarts_no_trainer(bench: Bench) -> None:
    train(bench)
    before = {p["metadata"]["uid"] for p in bench.pods()}
    bench.operator.kill()
    image = "registry.invalid/lead-trainer@sha256:" + "1" * 64
    bench.operator.start(LEAD_TRAINER_IMAGE=image, LEAD_RESYNC_SECONDS="2")
    wait_for("the new operator to look", lambda: bench.operator.metric("lead_reconcile_duration_seconds_count") >= 4)
    touched = sum(bench.operator.metric("lead_api_calls_total", verb=v, resource="pods") for v in ("post", "delete"))
    assert touched == 0
    assert {p["metadata"]["uid"] for p in bench.pods()} == before
    done = finish(bench)
    assert (done["phase"], done["restarts"]["total"]) == ("Succeeded", 0)  # type: ignore[index]


def test_rotated_credentials_are_read_anew(bench: Bench, tmp_path: Path) -> None:
    keys = next(tmp_path.rglob("credentials/default/secret-key"))
    keys.write_text("not-the-key-any-more")
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town"))
    wait_for("the refusal", lambda: "Denied" in json.dumps(bench.status("dsc", "town")))
    keys.write_text(ROOT_PASSWORD)
    assert bench.wait_phase("trun", "drive", "Succeeded", "Failed")["phase"] == "Succeeded"


def test_a_store_that_says_slow_down_ends_nothing(bench: Bench, tmp_path: Path) -> None:
    with StoreProxy(bench.minio.endpoint) as proxy:
        profiles = next(tmp_path.rglob("profiles.json"))
        profiles.write_text(profiles.read_text().replace(bench.minio.endpoint, proxy.endpoint))
        train(bench)
        proxy.plan("503", times=40)
        wait_for("the store to be told", lambda: "StorageUnavailable" in json.dumps(bench.status("trun", "drive")))
        assert bench.status("trun", "drive")["phase"] == "Running"
        proxy.clear()
        done = finish(bench)
        assert (done["phase"], done["restarts"]["total"]) == ("Succeeded", 0)  # type: ignore[index]


def test_a_node_object_that_is_deleted_is_a_lost_node(bench: Bench) -> None:
    bench.driver.script.held.add("pretrain")
    bench.operator.start()
    policy = {"nodeLossSeconds": 1}
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town", failurePolicy=policy))
    bench.wait_phase("trun", "drive", "Running")
    bench.plane.kubectl("delete", "node", bench.namespace)
    wait_for("the loss", lambda: bench.status("trun", "drive")["restarts"]["infrastructure"] >= 1)
    add_node(bench.plane, bench.namespace)
    assert finish(bench)["phase"] == "Succeeded"


def test_a_pod_that_fails_while_the_run_is_suspended_costs_nothing(bench: Bench) -> None:
    train(bench)
    bench.driver.script.exits[("pretrain", 1, 1)] = Exit(1, "while it was asked to stop")
    bench.kubectl("patch", "trun", "drive", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    bench.wait_phase("trun", "drive", "Suspended")
    bench.kubectl("patch", "trun", "drive", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    assert finish(bench)["phase"] == "Succeeded"


def test_a_ready_cache_stays_ready_when_how_it_is_kept_and_built_changes(bench: Bench) -> None:
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"))
    ready = bench.wait_phase("dsc", "town", "Ready")
    patch = '{"spec":{"retain":"Delete","build":{"maxRetries":7,"nodeSelector":{"disk":"ssd"}}}}'
    bench.kubectl("patch", "dsc", "town", "--type=merge", "-p", patch)
    wait_for("an answer", lambda: bench.status("dsc", "town").get("observedGeneration") == 2)
    bench.operator.kill()
    bench.operator.start()  # a new process reads the same from status and bucket
    bench.kubectl("patch", "dsc", "town", "--type=merge", "-p", '{"spec":{"build":{"maxRetries":8}}}')
    wait_for("an answer", lambda: bench.status("dsc", "town").get("observedGeneration") == 3)
    status = bench.status("dsc", "town")
    assert (status["phase"], status["digest"], status["uri"]) == ("Ready", ready["digest"], ready["uri"])
    assert all("-g1-" in pod["metadata"]["name"] for pod in bench.pods("build"))
