"""What a user sees of a DatasetCache and a TrainingRun between `kubectl apply` and `kubectl delete`."""

import re
import time
from typing import Any

from lead_testing.api_bench import Bench
from lead_testing.figures import record
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import wait_for
from lead_testing.statuses import newest_entry

STAGES = [
    {"name": "pretrain", "epochs": 2},
    {"name": "posttrain", "epochs": 3, "initFrom": {"stage": "pretrain"}, "config": {"use_planning_decoder": True}},
]


def test_a_cache_is_built_and_a_run_of_two_stages_trains_to_its_end(bench: Bench) -> None:
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town", stages=STAGES))
    cache = bench.wait_phase("dsc", "town", "Ready")
    run = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
    assert [(s["name"], s["phase"], s["attempt"]) for s in run["stages"]] == [
        ("pretrain", "Succeeded", 1),
        ("posttrain", "Succeeded", 1),
    ]
    pinned = {"name": "town", "digest": cache["digest"], "manifestSha256": cache["manifestSha256"]}
    assert run["datasets"] == [pinned]
    header, row = bench.kubectl("get", "trainingruns").splitlines()
    assert header.split() == ["NAME", "PHASE", "STAGE", "EPOCH", "LOSS", "RATE", "ETA", "CKPT", "RESTARTS", "AGE"]
    assert row.split()[:5] == ["drive", "Succeeded", "posttrain", "3/3", "0.125"]
    header, row = bench.kubectl("get", "datasetcaches").splitlines()
    assert header.split() == ["NAME", "PHASE", "ROUTES", "SAMPLES", "SHARDS", "SIZE", "USED-BY", "DIGEST", "AGE"]
    assert row.split()[:4] == ["town", "Ready", "2/3", "40"]


def test_the_columns_do_not_go_back_after_the_last_epoch(bench: Bench) -> None:
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town", stages=STAGES))
    rows: list[tuple[str, str, str]] = []

    def over() -> bool:
        status = bench.status("trun", "drive")
        display = status.get("display") or {}
        row = (status.get("phase", ""), display.get("stage", ""), display.get("epoch", ""))
        rows.extend([row] if row not in rows[-1:] else [])
        return row[0] == "Succeeded"

    wait_for("the end of the run", over)
    assert {phase for phase, stage, epoch in rows if (stage, epoch) == ("posttrain", "3/3")} <= {"Running", "Succeeded"}
    phases = [phase for phase, stage, _ in rows if stage == "posttrain"]
    assert phases == sorted(phases, key=["Starting", "Running", "Succeeded"].index)


def test_progress_shows_in_kubectl_while_the_run_trains(bench: Bench) -> None:
    bench.driver.script.held.add("pretrain")
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town"))
    bench.wait_phase("trun", "drive", "Running")
    row = wait_for("a rate in kubectl get", lambda: _row_with(bench, "412/s"))
    assert row.split()[:6] == ["drive", "Running", "pretrain", "0/2", "0.5", "412/s"]
    columns = _wide(bench)
    assert {name: columns[name] for name in ("STEP", "READY", "CACHE", "NODES", "RESUMED-FROM", "REASON")} == {
        "STEP": "0/20", "READY": "2/2", "CACHE": "93%", "NODES": bench.namespace, "RESUMED-FROM": "",
        "REASON": "Training",
    }  # fmt: skip


def _wide(bench: Bench) -> dict[str, str]:
    """Returns the only run's row of `kubectl get -o wide` by column."""
    header, row = bench.kubectl("get", "trun", "-o", "wide").splitlines()
    found = list(re.finditer(r"\S+", header))
    ends = [following.start() for following in found[1:]] + [None]
    return {name.group(): row[name.start() : end].strip() for name, end in zip(found, ends, strict=True)}


def _row_with(bench: Bench, text: str) -> str:
    row = bench.kubectl("get", "trun", "--no-headers")
    return row if text in row else ""


def test_a_missing_cache_is_a_condition_and_the_run_goes_on_once_it_is_there(bench: Bench) -> None:
    bench.operator.start()
    bench.apply(a_training_run("drive", "town"))
    waiting = bench.wait_phase("trun", "drive", "Pending")
    dataset = next(c for c in waiting["conditions"] if c["type"] == "DatasetReady")
    assert dataset["status"] == "False"
    assert "town" in dataset["message"]
    bench.apply(a_dataset_cache("town", "datasets/town"))
    assert bench.wait_phase("trun", "drive", "Succeeded", "Failed")["phase"] == "Succeeded"


def test_a_suspended_run_gives_its_pods_back_and_goes_on_from_its_checkpoint(bench: Bench) -> None:
    bench.driver.script.held.add("pretrain")
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town"))
    bench.wait_phase("trun", "drive", "Running")
    bench.kubectl("patch", "trun", "drive", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    suspended = bench.wait_phase("trun", "drive", "Suspended")
    assert bench.pods() == []
    assert newest_entry(suspended)["checkpoint"]["epoch"] == 1
    bench.driver.script.held.clear()
    bench.kubectl("patch", "trun", "drive", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    done = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
    assert (done["phase"], done["restarts"]["total"], done["stages"][0]["attempt"]) == ("Succeeded", 0, 2)
    assert _wide(bench)["RESUMED-FROM"] == "step 10"


def test_every_child_goes_with_its_owner(bench: Bench) -> None:
    cache_spec = {"medium": "PersistentVolume", "sizeLimit": "1Gi"}
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town", sessionCache=cache_spec))
    bench.wait_phase("trun", "drive", "Succeeded")
    uids = {bench.get("trun", "drive")["metadata"]["uid"], bench.get("dsc", "town")["metadata"]["uid"]}
    children = [*bench.driver.seen.values(), bench.get("service", "drive-ranks"), bench.get("pvc", "drive-cache-0")]
    assert len(children) == 6
    for child in children:
        (owner,) = child["metadata"]["ownerReferences"]
        assert owner["uid"] in uids
        assert owner["controller"]
    for kind, name in (("trun", "drive"), ("dsc", "town")):
        assert "finalizers" not in bench.get(kind, name)["metadata"]
        bench.kubectl("delete", kind, name, "--wait=true", "--timeout=10s")


def test_an_erased_status_is_rebuilt_from_pods_and_bucket(bench: Bench) -> None:
    bench.driver.script.held.add("posttrain")
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town", stages=STAGES))
    wait_for(
        "the second stage to train",
        lambda: newest_entry(bench.status("trun", "drive")).get("name") == "posttrain",
    )
    before = bench.wait_phase("trun", "drive", "Running")
    pods = {p["metadata"]["uid"] for p in bench.pods()}
    erased = time.monotonic()
    for kind, name in (("trun", "drive"), ("dsc", "town")):
        bench.kubectl("patch", kind, name, "--subresource=status", "--type=merge", "-p", '{"status":null}')
    bench.wait_phase("dsc", "town", "Ready")
    after = bench.wait_phase("trun", "drive", "Running")
    record("rebuilt_s", time.monotonic() - erased)
    wait_for("the same pods to be kept", lambda: {p["metadata"]["uid"] for p in bench.pods()} == pods)
    assert [told(after), after["datasets"]] == [told(before), before["datasets"]]
    assert [(s["phase"], s["attempt"]) for s in after["stages"]] == [("Succeeded", 1), ("Running", 1)]


def told(status: dict[str, Any]) -> list[Any]:
    """Returns what is the same after the status was rebuilt."""
    shown = status["display"]["stage"], newest_entry(status)["checkpoint"], newest_entry(status)["progress"]["epoch"]
    return [status["phase"], *shown]


def test_pods_of_an_earlier_run_of_the_same_name_are_never_taken_over(bench: Bench) -> None:
    bench.driver.script.held.add("pretrain")
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town"))
    bench.wait_phase("trun", "drive", "Running")
    old = bench.get("trun", "drive")["metadata"]["uid"]
    bench.kubectl("delete", "trun", "drive")  # nothing collects its pods here: they live on under the same names
    bench.driver.script.held.clear()
    bench.driver.script.exits.clear()
    bench.apply(a_training_run("drive", "town"))
    done = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
    new = bench.get("trun", "drive")["metadata"]["uid"]
    assert done["phase"] == "Succeeded"
    owners = {p["metadata"]["labels"]["lead.dev/owner-uid"] for p in bench.pods()}
    assert (old != new, owners) == (True, {new})
