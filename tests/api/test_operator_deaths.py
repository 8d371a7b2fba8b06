"""The operator dies, freezes, goes deaf or is there twice; the run's end is the same."""

import json
from collections import Counter
from itertools import cycle
from pathlib import Path

from lead_testing.api_bench import Bench, add_node
from lead_testing.figures import wait_and_record
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import DIE_AFTER_WRITE, KILLED, OperatorProcess, wait_for
from lead_testing.pod_driver import Exit
from lead_testing.statuses import newest_entry

STAGES = [{"name": "pretrain", "epochs": 2}, {"name": "posttrain", "epochs": 1, "initFrom": {"stage": "pretrain"}}]


def names_made_twice(bench: Bench) -> dict[str, int]:
    """Pods' names that more than one UID ever had."""
    counts = Counter(p["metadata"]["name"] for p in bench.driver.seen.values())
    return {name: count for name, count in counts.items() if count > 1}


def test_an_operator_that_keeps_being_killed_brings_the_run_to_the_same_end(bench: Bench) -> None:
    bench.driver.script.exits[("pretrain", 1, 1)] = Exit(1, "boom")
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town", stages=STAGES))
    deaths = 0
    for writes in cycle((5, 9, 6, 7)):  # a life ends right after so many writes
        bench.operator.start(**{DIE_AFTER_WRITE: str(writes)})
        wait_for("a death or the end", lambda: bench.operator.exit_status() == KILLED or _ended(bench))
        deaths += bench.operator.exit_status() == KILLED
        bench.operator.kill()
        if _ended(bench):
            break
    done = bench.status("trun", "drive")
    assert deaths >= 3
    assert (done["phase"], done["restarts"]["program"], done["restarts"]["total"]) == ("Succeeded", 1, 1)
    assert [s["attempt"] for s in done["stages"]] == [2, 1]
    assert names_made_twice(bench) == {}


def test_events_of_an_operator_that_died_before_it_sent_them_are_there(bench: Bench) -> None:
    """Those of the second stage wait for their minute when the first process ends; later all are deleted instead."""
    wanted = {"PodsCreated": 2, "Ready": 1, "StageCompleted": 2, "Succeeded": 1}
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town", stages=STAGES))
    bench.wait_phase("trun", "drive", "Succeeded")
    bench.operator.kill()
    bench.operator.start()
    wait_for("all events", lambda: _counts(bench, wanted) == wanted)
    before = _told(bench)
    bench.operator.terminate()
    bench.kubectl("delete", "events", "--field-selector=reason=Succeeded")
    bench.operator.start()
    wait_for("the missing one", lambda: _counts(bench, wanted) == wanted)
    assert _told(bench) == before, "what is there is not written again"


def _counts(bench: Bench, wanted: dict[str, int]) -> dict[str, int]:
    told = _told(bench)
    return {reason: len(told.get(reason, [])) for reason in wanted}


def _told(bench: Bench) -> dict[str, list[str]]:
    """The events of the run and of its cache: messages by reason."""
    found: dict[str, list[str]] = {}
    for event in json.loads(bench.kubectl("get", "events", "-o", "json"))["items"]:
        found.setdefault(event["reason"], []).append(event["message"])
    return {reason: sorted(messages) for reason, messages in found.items()}


def _ended(bench: Bench) -> bool:
    return bench.status("trun", "drive").get("phase") in ("Succeeded", "Failed")


def test_a_pod_deleted_while_every_watch_was_broken_is_noticed(bench: Bench) -> None:
    bench.driver.script.held.add("pretrain")
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town"))
    bench.wait_phase("trun", "drive", "Running")
    bench.operator.freeze()
    bench.plane.kill_apiserver()
    bench.plane.start_apiserver()
    bench.kubectl("delete", "pod", "drive-pretrain-s0-a1-1", "--grace-period=0", "--force")
    bench.driver.script.held.clear()
    bench.operator.thaw()
    done = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
    assert (done["phase"], done["restarts"]["infrastructure"]) == ("Succeeded", 1)
    assert bench.operator.page("healthz") == (200, "ok")


def test_a_run_and_a_node_that_went_while_every_watch_was_broken_are_noticed(bench: Bench) -> None:
    node, far = f"{bench.namespace}-b", [{"name": "far", "epochs": 2}]
    add_node(bench.plane, node)
    bench.driver.script.nodes[("far", 1, 1)] = node
    bench.driver.script.held.update(("pretrain", "far"))
    bench.operator.start()
    stays = a_training_run("stays", "town", stages=far, failurePolicy={"nodeLossSeconds": 1})
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("goes", "town"), stays)
    for name in ("goes", "stays"):
        bench.wait_phase("trun", name, "Running")
    bench.operator.freeze()
    bench.plane.kill_apiserver()
    bench.plane.start_apiserver()
    bench.kubectl("delete", "trun", "goes")
    bench.plane.kubectl("delete", "node", node)
    bench.driver.script.dead_nodes.add(node)
    bench.operator.thaw()
    wait_for("the loss of the node", lambda: bench.status("trun", "stays")["restarts"]["infrastructure"] == 1)
    wait_for("the run to be forgotten", lambda: bench.operator.metric("lead_resources", kind="TrainingRun") == 1)
    wait_for("the cache to know", lambda: bench.status("dsc", "town")["usedBy"] == ["stays"])
    bench.driver.script.held.clear()
    done = bench.wait_phase("trun", "stays", "Succeeded", "Failed")
    assert (done["phase"], done["restarts"]["total"]) == ("Succeeded", 1)
    assert not any("goes-pretrain-s0-a2" in p["metadata"]["name"] for p in bench.driver.seen.values())


def test_what_pods_wrote_while_no_operator_lived_is_told_by_the_next_one(bench: Bench) -> None:
    bench.driver.script.held.add("pretrain")
    bench.operator.start()
    stages = [{"name": "pretrain", "epochs": 4}]
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town", stages=stages))
    bench.wait_phase("trun", "drive", "Running")
    bench.operator.kill()
    bench.driver.script.held_at = 2
    rank_0 = next(pod for pod in bench.pods() if pod["metadata"]["labels"]["lead.dev/rank"] == "0")
    bench.driver.begin_training(rank_0)
    before = bench.status("trun", "drive")
    assert newest_entry(before)["progress"]["epoch"] == 0
    bench.operator.start()  # pods and status agree, so nothing but the bucket has news
    wait_for("the second epoch to be told", lambda: bench.status("trun", "drive")["display"]["epoch"] == "2/4")
    told = bench.status("trun", "drive")
    (entry,) = told["stages"]
    assert (entry["checkpoint"]["epoch"], entry["attempt"], told["restarts"]) == (2, 1, before["restarts"])


def test_of_two_operators_one_acts_and_the_other_takes_over(bench: Bench, tmp_path: Path) -> None:
    bench.driver.script.held.add("pretrain")
    bench.operator.start()
    wait_for("the first to hold the lease", lambda: bench.operator.metric("lead_leader") == 1)
    second = OperatorProcess(
        bench.plane.kubeconfig,
        tmp_path / "second",
        bench.namespace,
        bench.minio.endpoint,
        bench.namespace,
        pod="operator-1",
    )
    with second:
        second.start()
        wait_for("the second to have seen the cluster", lambda: second.page("readyz")[0] == 200)
        bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town"))
        bench.wait_phase("trun", "drive", "Running")
        assert (second.writes(), second.metric("lead_leader")) == (0, 0)
        bench.driver.script.held.clear()
        bench.operator.kill()
        wait_and_record("takeover_s", "the second to lead", lambda: second.metric("lead_leader") == 1)
        assert bench.wait_phase("trun", "drive", "Succeeded", "Failed")["phase"] == "Succeeded"
    assert names_made_twice(bench) == {}


def test_an_operator_asked_to_end_gives_its_lease_back(bench: Bench) -> None:
    bench.operator.start()
    wait_for("the lease", lambda: bench.operator.metric("lead_leader") == 1)
    assert bench.operator.terminate() == 0
    assert bench.get("lease", "lead-operator")["spec"].get("holderIdentity", "") == ""


def test_an_idle_operator_writes_nothing_and_lists_nothing(bench: Bench) -> None:
    bench.driver.script.held.add("pretrain")
    bench.operator.start(LEAD_RESYNC_SECONDS="2", LEAD_RELIST_SECONDS="600")
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town"))
    bench.wait_phase("trun", "drive", "Running")
    wait_for("the last report", lambda: "412/s" in bench.kubectl("get", "trun", "--no-headers"))
    conditions = lambda: [c["type"] for c in bench.status("dsc", "town").get("conditions", [])]  # noqa: E731
    wait_for("the look at the cache's source", lambda: "SourceDrift" in conditions())
    passes, writes = _passes(bench), bench.operator.writes()
    lists, watches = _calls(bench, "list"), _calls(bench, "watch")
    wait_for("ten more passes", lambda: _passes(bench) >= passes + 10)
    wait_for("three more watches", lambda: _calls(bench, "watch") >= watches + 3)
    assert (bench.operator.writes(), _calls(bench, "list")) == (writes, lists)


def _calls(bench: Bench, verb: str) -> float:
    return bench.operator.metric("lead_api_calls_total", verb=verb, resource="pods")


def _passes(bench: Bench) -> float:
    return bench.operator.metric("lead_reconcile_duration_seconds_count", kind="TrainingRun")
