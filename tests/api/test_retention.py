"""What keepLast and keepBest leave in the bucket, seen from outside."""

from typing import Any

from lead_protocol.manifests import CheckpointManifest, StoredObject
from lead_protocol.object_keys import InstanceKeys
from lead_testing.api_bench import Bench
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import wait_for

SHA = "5" * 64


def test_old_checkpoints_go_while_a_run_trains_and_at_its_end(bench: Bench) -> None:
    bench.driver.script.held.add("train")
    bench.operator.start()
    stages = [{"name": "train", "epochs": 6}]
    run = a_training_run("drive", "town", stages=stages, checkpoint={"keepLast": 3, "keepBest": 1})
    bench.apply(a_dataset_cache("town", "datasets/town"), run)
    bench.wait_phase("trun", "drive", "Running")
    keys = InstanceKeys(bench.namespace, bench.get("trun", "drive")["metadata"]["uid"], "train", 0)
    for epoch in range(1, 6):
        commit(bench, keys, epoch, loss={1: 0.1}.get(epoch, 0.5))
    wait_for("the first retention", lambda: kept_steps(bench, keys) == [10, 30, 40, 50])
    bench.driver.script.held.clear()
    assert bench.wait_phase("trun", "drive", "Succeeded", "Failed")["phase"] == "Succeeded"
    wait_for("retention at the end", lambda: kept_steps(bench, keys) == [10, 40, 50, 60])
    wait_for("only named data", lambda: data_keys(bench, keys) == named_keys(bench, keys))


def commit(bench: Bench, keys: InstanceKeys, epoch: int, *, loss: float) -> None:
    step = epoch * 10
    data = f"{keys.checkpoint(step, 1, 'nonce')}model_{epoch:04d}.pth"
    bench.store.create(data, b"data")
    fields: dict[str, Any] = {
        "run_uid": keys.uid, "stage": keys.stage, "seed": keys.seed, "attempt": 1, "nonce": "nonce", "step": step,
        "epoch": epoch, "step_in_epoch": 0, "parent_sha256": None, "recipe": "lead", "config_sha256": SHA,
        "dataset_digests": [], "world_size": 1, "torch_version": "0", "parameters_sha256": SHA, "saved_at": "",
        "files": {"model.pth": StoredObject(key=data, size=4, sha256=SHA)}, "metrics": {"loss": loss},
    }  # fmt: skip
    bench.store.create(keys.manifest(step, 0), CheckpointManifest(**fields).model_dump_json().encode())


def manifests(bench: Bench, keys: InstanceKeys) -> list[CheckpointManifest]:
    return [
        CheckpointManifest.model_validate_json(bench.store.get(info.key, max_bytes=100_000))
        for info in list(bench.store.list(keys.manifests_prefix))
    ]


def kept_steps(bench: Bench, keys: InstanceKeys) -> list[int]:
    prefix = keys.manifests_prefix
    return [int(info.key.removeprefix(prefix).split(".")[0]) for info in bench.store.list(prefix)]


def data_keys(bench: Bench, keys: InstanceKeys) -> set[str]:
    return {info.key for info in bench.store.list(keys.checkpoints_prefix)}


def named_keys(bench: Bench, keys: InstanceKeys) -> set[str]:
    return {file.key for manifest in manifests(bench, keys) for file in manifest.files.values()}
