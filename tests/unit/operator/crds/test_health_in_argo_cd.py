"""The health checks of the page for GitOps, on statuses that the operator really writes: Argo CD's is run by Lua."""

import re
from typing import Any

import pytest
from lupa import LuaRuntime

from lead_operator.decisions.dataset_cache.plan import decide_dataset_cache
from lead_operator.decisions.observed import ObservedBuild, ObservedRun
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_operator.resources.crd_defaults import crd_folder
from lead_testing.decision_worlds.cache_world import CacheWorld
from lead_testing.decision_worlds.run_world import RunWorld
from lead_testing.makers import NOW, SETTINGS, a_dataset_cache, a_training_run


def health(kind: str, status: dict[str, Any] | None, *, generation: int = 1) -> tuple[str, str]:
    """Returns what Argo CD would show: health and message."""
    page = (crd_folder() / "docs/gitops.md").read_text()
    found = re.search(r"```lua\n(.*?)```", page, re.DOTALL)
    assert found is not None
    lua = LuaRuntime(register_eval=False, unpack_returned_tuples=True)
    body = {"kind": kind, "metadata": {"name": "x", "generation": generation}}
    lua.globals().obj = lua.table_from(body | ({"status": status} if status is not None else {}), recursive=True)
    answer = lua.execute(found.group(1))
    return answer["status"], answer["message"]


def failed_for_flux(kind: str, status: dict[str, Any]) -> bool:
    """Returns whether a condition is one of those that the page's expression joins by `||`."""
    page = (crd_folder() / "docs/gitops.md").read_text()
    found = re.search(rf"kind: {kind}\n +failed: status\.conditions\.exists\(c, (.*)\)\n", page)
    assert found is not None
    pairs = [re.fullmatch(r"\(c\.type == '(\w+)' && c\.status == '(\w+)'\)", each) for each in found[1].split(" || ")]
    wanted = [pair.groups() for pair in pairs if pair is not None]
    assert len(wanted) == len(pairs), found[1]
    return any((condition["type"], condition["status"]) in wanted for condition in status["conditions"])


def test_a_resource_nobody_has_answered_yet_is_progressing() -> None:
    assert health("TrainingRun", None)[0] == "Progressing"
    ready = a_run(phase="Succeeded")
    assert health("TrainingRun", ready, generation=2)[0] == "Progressing", "a status of an older spec proves nothing"


def a_run(phase: str) -> dict[str, Any]:
    """Returns the status that the operator writes for a run in a phase, reached in a small world."""
    world = RunWorld()
    for _ in range(30):
        world.apply(decide_training_run(world.run, world.observe(), SETTINGS))
        if world.status["phase"] == phase:
            return world.status
        for name in world.names("Pending"):
            world.start(name)
        world.finish_deletions()
        if phase == "Suspended":
            world.suspend(True)
        elif phase == "Failed" and world.names("Running"):
            world.end(world.names("Running")[0], 64)
        else:
            world.train(5)
    raise AssertionError(f"the world never came to {phase}: {world.status}")


@pytest.mark.parametrize(
    ("phase", "shown"),
    [
        ("Starting", "Progressing"),
        ("Running", "Progressing"),
        ("Suspended", "Suspended"),
        ("Succeeded", "Healthy"),
        ("Failed", "Degraded"),
    ],
)
def test_a_runs_health_follows_its_conditions(phase: str, shown: str) -> None:
    status = a_run(phase)
    assert health("TrainingRun", status)[0] == shown
    assert failed_for_flux("TrainingRun", status) == (shown == "Degraded")
    without_phase = {key: value for key, value in status.items() if key != "phase"}
    assert health("TrainingRun", without_phase)[0] == shown, "health is read from conditions alone"


def test_a_run_that_waits_says_what_for() -> None:
    status = decide_training_run(a_training_run(), ObservedRun(now=NOW), SETTINGS).status
    shown, message = health("TrainingRun", status)
    assert (shown, "towns" in message) == ("Progressing", True)


def test_a_wrong_storage_profile_is_degraded() -> None:
    run, cache = a_training_run(storageProfile="fast"), a_dataset_cache(storageProfile="fast")
    seen: dict[str, Any] = {"now": NOW, "profile_error": "storage profile 'fast' is not defined"}
    for kind, status in (
        ("TrainingRun", decide_training_run(run, ObservedRun(**seen), SETTINGS).status),
        ("DatasetCache", decide_dataset_cache(cache, ObservedBuild(**seen), SETTINGS).status),
    ):
        shown, message = health(kind, status)
        assert (shown, "fast" in message) == ("Degraded", True)
        assert failed_for_flux(kind, status)


def test_a_caches_health_follows_its_conditions() -> None:
    world, seen = CacheWorld(), []
    for _ in range(10):
        world.apply(decide_dataset_cache(world.cache(), world.observe(), SETTINGS))
        seen.append(health("DatasetCache", world.status)[0])
        for name in world.names("Pending"):
            world.start(name)
        for name in world.names("Running"):
            world.finish_share(name)
    assert (seen[0], seen[-1]) == ("Progressing", "Healthy")
