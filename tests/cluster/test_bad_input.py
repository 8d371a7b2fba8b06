"""Bad input, as a user meets it: one clear message in the right place, nothing crashes, a correction proceeds."""

import json
from pathlib import Path
from typing import Any

import pytest

from lead_testing.installed import Installed, conditions, upload_tree
from lead_testing.manifests import a_dataset_cache, a_training_run


@pytest.fixture(scope="module")
def ready_cache(installed: Installed, lead_tree: Path) -> str:
    """The name of a small cache that is Ready."""
    with installed.store() as store:
        upload_tree(store, lead_tree / "data/ConstructionObstacle", "datasets/small/data/ConstructionObstacle")
    installed.apply(a_dataset_cache("small", "datasets/small"))
    installed.wait_for_phase("datasetcache", "small", "Ready")
    return "small"


def test_an_unknown_spec_field_is_refused_by_name(installed: Installed) -> None:
    refused = apply_refused(installed, a_training_run("typo", "small", epochz=3))
    assert "epochz" in refused


def test_a_wrong_type_is_refused_by_name(installed: Installed) -> None:
    refused = apply_refused(installed, a_training_run("wrong-type", "small", nodes="two"))
    assert "spec.nodes" in refused and "integer" in refused


def test_an_unknown_config_key_names_its_nearest_match(installed: Installed, ready_cache: str) -> None:
    failed = run_until_failed(installed, a_training_run("bad-key", ready_cache, nodes=1, config={"batch_sise": 2}))
    assert failed["Accepted"].startswith("False")
    assert "batch_sise" in failed["Accepted"] and "batch_size" in failed["Accepted"]


def test_an_unknown_recipe_is_named(installed: Installed, ready_cache: str) -> None:
    failed = run_until_failed(installed, a_training_run("bad-recipe", ready_cache, nodes=1, recipe="leed"))
    assert "leed" in failed["Failed"] and "lead" in failed["Failed"]


def test_a_missing_cache_is_named_and_the_run_proceeds_once_it_is_there(installed: Installed, ready_cache: str) -> None:
    installed.apply(a_training_run("early", "later", nodes=1))
    waiting = installed.wait_for("the condition", lambda: message(installed, "early", "DatasetReady"))
    assert "later" in waiting
    installed.apply(a_dataset_cache("later", "datasets/small"))
    installed.wait_for_phase("trainingrun", "early", "Succeeded", deadline_s=600)


def test_a_missing_secret_is_named(installed: Installed, ready_cache: str) -> None:
    wandb = {"project": "p", "mode": "Online", "secretName": "lead-wandb-none"}
    installed.apply(a_training_run("no-secret", ready_cache, nodes=1, logging={"wandb": wandb}))
    installed.wait_for(
        "the Secret's name in a condition", lambda: "lead-wandb-none" in json.dumps(status(installed, "no-secret"))
    )
    installed.kubectl("delete", "trainingrun", "no-secret", "--wait")


def test_too_little_memory_is_named(installed: Installed, ready_cache: str) -> None:
    tight = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "64Mi"}}
    run = a_training_run("tight", ready_cache, nodes=1, resources=tight, failurePolicy={"maxRestarts": 0})
    failed = run_until_failed(installed, run)
    assert "OOMKilled" in failed["Failed"] and "resources.limits.memory" in failed["Failed"]
    assert status(installed, "tight")["lastFailure"]["exitCode"] == 137


def test_an_empty_dataset_is_named(installed: Installed) -> None:
    installed.apply(a_dataset_cache("empty", "datasets/nothing-here"))
    failed = cache_failure(installed, "empty")
    assert "datasets/nothing-here" in failed


def test_a_truncated_file_is_named_and_a_repaired_one_proceeds(installed: Installed, lead_tree: Path) -> None:
    folder = min(lead_tree.glob("data/ConstructionObstacle/*"))
    route, victim = folder.name, "metas/0005.pkl"
    prefix = f"datasets/broken/data/ConstructionObstacle/{route}"
    whole = (folder / victim).read_bytes()
    with installed.store() as store:
        upload_tree(store, folder, prefix)
        store.put(f"{prefix}/{victim}", whole[: len(whole) // 2])
    installed.apply_anew(a_dataset_cache("broken", "datasets/broken"))
    failed = cache_failure(installed, "broken")
    assert route in failed and victim in failed
    with installed.store() as store:
        store.put(f"{prefix}/{victim}", whole)
    installed.apply_anew(a_dataset_cache("broken", "datasets/broken"))
    installed.wait_for_phase("datasetcache", "broken", "Ready")


def apply_refused(installed: Installed, manifest: dict[str, Any]) -> str:
    """Applies a manifest that the API server must refuse; returns what kubectl printed."""
    done = installed.run("kubectl", "apply", "-f", "-", stdin=json.dumps(manifest))
    assert done.returncode != 0, f"accepted: {done.stdout}"
    return done.stderr


def run_until_failed(installed: Installed, manifest: dict[str, Any]) -> dict[str, str]:
    """Applies a run that must fail without a restart; returns its conditions."""
    installed.apply_anew(manifest)
    name = manifest["metadata"]["name"]
    installed.wait_for(f"{name} to be Failed", lambda: status(installed, name).get("phase") == "Failed")
    assert status(installed, name)["restarts"]["total"] == 0
    return conditions(status(installed, name))


def cache_failure(installed: Installed, name: str) -> str:
    """Waits until a DatasetCache is Failed; returns its conditions as one text."""
    look = lambda: installed.status("datasetcache", name).get("phase") == "Failed"  # noqa: E731
    installed.wait_for(f"datasetcache {name} to be Failed", look)
    return json.dumps(conditions(installed.status("datasetcache", name)))


def status(installed: Installed, name: str) -> dict[str, Any]:
    """Returns a run's status."""
    return installed.status("trainingrun", name)


def message(installed: Installed, name: str, condition: str) -> str:
    """Returns a run's condition as text, empty while it is absent."""
    return conditions(status(installed, name)).get(condition, "")
