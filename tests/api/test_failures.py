"""What becomes of a run when something fails around it."""

from lead_protocol.object_keys import ControlKeys
from lead_testing.api_bench import Bench, add_node, set_node_ready
from lead_testing.kube_faults.truth import Truth
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import wait_for
from lead_testing.pod_driver import Exit


def test_a_failed_rank_restarts_the_whole_group_once(bench: Bench) -> None:
    bench.driver.script.exits[("pretrain", 1, 1)] = Exit(1, "RuntimeError: the wheel came off")
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town"))
    done = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
    assert (done["phase"], done["restarts"]["program"], done["restarts"]["total"]) == ("Succeeded", 1, 1)
    assert done["stages"][0]["attempt"] == 2
    assert "the wheel came off" in done["lastFailure"]["message"]
    names = sorted(p["metadata"]["name"] for p in bench.driver.seen.values() if "drive" in p["metadata"]["name"])
    assert names == [f"drive-pretrain-s0-a{attempt}-{rank}" for attempt in (1, 2) for rank in (0, 1)]


def test_a_mistake_of_the_user_ends_the_run_at_once_and_says_why(bench: Bench) -> None:
    bench.driver.script.exits[("pretrain", 1, 0)] = Exit(64, "unknown key 'batchsize'; did you mean 'batch_size'?")
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town"))
    failed = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
    assert (failed["phase"], failed["restarts"]["total"]) == ("Failed", 0)
    messages = " ".join(c["message"] for c in failed["conditions"])
    assert "did you mean 'batch_size'" in messages
    assert not any("-a2-" in p["metadata"]["name"] for p in bench.driver.seen.values())


def test_a_cache_that_failed_for_missing_data_is_built_when_they_come(bench: Bench) -> None:
    bench.driver.script.exits[("", 1, 0)] = Exit(65, "no route below datasets/later")
    bench.operator.start(LEAD_SOURCE_CHECK_SECONDS="1")
    bench.apply(a_dataset_cache("town", "datasets/later", build={"parallelism": 1}))
    bench.apply(a_training_run("drive", "town"))
    failed = bench.wait_phase("dsc", "town", "Failed")
    said = next(c["message"] for c in failed["conditions"] if c["type"] == "Failed")
    assert "it is built again by itself when files below datasets/later change" in said
    keys = ControlKeys(bench.namespace, bench.get("dsc", "town")["metadata"]["uid"])
    wait_for("the source to be recorded", lambda: bench.store.head(keys.failed_source(1, 0)) is not None)
    bench.operator.kill()
    bench.store.put("datasets/later/data/Accident/route1/rgb/0001.jpg", b"a picture")
    bench.operator.start(LEAD_SOURCE_CHECK_SECONDS="1")
    assert bench.wait_phase("dsc", "town", "Ready")["build"]["rebuilds"] == 1
    assert bench.wait_phase("trun", "drive", "Succeeded", "Failed")["phase"] == "Succeeded"


def test_a_lost_node_restarts_the_group_and_counts_as_infrastructure(bench: Bench) -> None:
    bench.driver.script.held.add("pretrain")
    bench.operator.start()
    policy = {"nodeLossSeconds": 1}
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town", failurePolicy=policy))
    bench.wait_phase("trun", "drive", "Running")
    set_node_ready(bench.plane, bench.namespace, ready=False)
    wait_for("the loss to count", lambda: bench.status("trun", "drive")["restarts"]["infrastructure"] >= 1)
    set_node_ready(bench.plane, bench.namespace, ready=True)
    bench.driver.script.held.clear()
    done = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
    assert (done["phase"], done["restarts"]["program"]) == ("Succeeded", 0)
    assert done["restarts"]["infrastructure"] >= 1


def test_a_dead_kubelet_on_a_second_node_costs_one_attempt_and_its_pod_is_forced(bench: Bench) -> None:
    second = f"{bench.namespace}-b"
    add_node(bench.plane, second)
    bench.driver.script.held.add("pretrain")
    bench.driver.script.nodes[("pretrain", 1, 1)] = second
    bench.operator.start()
    policy = {"nodeLossSeconds": 1}
    with Truth(bench.plane.kubeconfig, bench.namespace) as truth:
        bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town", failurePolicy=policy))
        bench.wait_phase("trun", "drive", "Running")
        bench.driver.script.dead_nodes.add(second)
        set_node_ready(bench.plane, second, ready=False)
        wait_for("the next attempt", lambda: len(bench.pods()) == 2 and "drive-pretrain-s0-a2-1" in str(bench.pods()))
        assert {p["spec"].get("nodeName", bench.namespace) for p in bench.pods()} == {bench.namespace}
        set_node_ready(bench.plane, second, ready=True)
        bench.driver.script.dead_nodes.clear()
        bench.driver.script.held.clear()
        done = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
    restarts = done["restarts"]
    assert (done["phase"], restarts["infrastructure"], restarts["program"]) == ("Succeeded", 1, 0)
    assert truth.violations == []


def test_a_store_that_is_away_is_a_condition_and_the_run_goes_on_when_it_is_back(bench: Bench) -> None:
    bench.driver.script.held.add("pretrain")
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town"))
    bench.wait_phase("trun", "drive", "Running")
    bench.minio.stop()
    try:
        wait_for("StorageAvailable=False", lambda: _storage(bench) == "False")
        assert bench.status("trun", "drive")["phase"] == "Running"
    finally:
        bench.minio.start()
    bench.driver.script.held.clear()
    done = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
    assert (done["phase"], done["restarts"]["total"]) == ("Succeeded", 0)


def _storage(bench: Bench) -> str:
    conditions = bench.status("trun", "drive").get("conditions", [])
    return next((c["status"] for c in conditions if c["type"] == "StorageAvailable"), "")


def test_a_refused_pod_is_an_event_and_not_a_hot_loop(bench: Bench) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    bench.apply(quota)
    usage = '{"status":{"hard":{"pods":"0"},"used":{"pods":"0"}}}'
    bench.kubectl("patch", "resourcequota", "none", "--subresource=status", "--type=merge", "-p", usage)
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"))
    wait_for("the event", lambda: "exceeded quota" in bench.kubectl("get", "events"))
    pauses = wait_for("four refusals", lambda: len(bench.operator.pauses()) >= 4 and bench.operator.pauses())
    assert sorted(pauses) == pauses, "the pause between tries grows"
    told = wait_for("the refusal in the status", lambda: _ready_reason(bench) and bench.status("dsc", "town"))
    assert told["reason"] == "ObjectsRefused"
    assert "raise the ResourceQuota" in str(told["conditions"])
    bench.kubectl("delete", "resourcequota", "none")
    bench.wait_phase("dsc", "town", "Ready")


def _ready_reason(bench: Bench) -> bool:
    conditions = bench.status("dsc", "town").get("conditions", [])
    return any(c["type"] == "Ready" and c["reason"] == "ObjectsRefused" for c in conditions)


def test_a_spec_that_makes_invalid_pods_fails_by_field_and_a_corrected_cache_goes_on(
    bench: Bench,
) -> None:
    wrong = [{"key": "gpu", "operator": "Exists", "value": "of operator Equal"}]
    more_than_limit = {"requests": {"memory": "4Gi"}, "limits": {"memory": "3Gi"}}
    bench.operator.start()
    bench.apply(
        a_dataset_cache("town", "datasets/town", build={"tolerations": wrong}),
        a_training_run("drive", "town", resources=more_than_limit),
    )
    cache = bench.wait_phase("dsc", "town", "Failed")
    assert cache["reason"] == "BadSpec" and "spec.build.tolerations[0].operator" in str(cache["conditions"])
    bench.kubectl("patch", "dsc", "town", "--type=merge", "-p", '{"spec": {"build": {"tolerations": []}}}')
    run = bench.wait_phase("trun", "drive", "Failed")
    assert run["reason"] == "BadSpec" and "spec.resources.requests" in str(run["conditions"])


def test_a_limit_that_the_namespace_fills_in_holds_pods_up_until_it_is_raised(bench: Bench) -> None:
    limits = {"limits": [{"type": "Container", "default": {"cpu": "500m"}}]}
    small = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small"}, "spec": limits}
    bench.operator.start()
    bench.apply(small)
    bench.apply(a_dataset_cache("town", "datasets/town", build={"resources": {"requests": {"cpu": "1"}}}))
    wait_for("the refusal", lambda: bench.status("dsc", "town").get("reason") == "ObjectsRefused")
    assert "raise the default limit in the LimitRange" in str(bench.status("dsc", "town")["conditions"])
    bench.kubectl("delete", "limitrange", "small")
    bench.wait_phase("dsc", "town", "Ready")
