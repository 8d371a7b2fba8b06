"""What users do while things go wrong: eight stories, each with one right end whatever happens meanwhile.

A story applies manifests at the API server itself, never through the proxy, and returns when its end is reached.
`describe_end` is that end without anything that may differ between two good runs: no versions, UIDs or times.
"""

import json
from collections.abc import Callable
from typing import Any

from lead_testing.api_bench import Bench
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import wait_for
from lead_testing.pod_driver import Exit
from lead_testing.statuses import newest_entry

ENDED = ("Succeeded", "Failed", "Ready")
CACHE = a_dataset_cache("town", "datasets/town")
STAGES = [{"name": "pretrain", "epochs": 2}, {"name": "posttrain", "epochs": 1, "initFrom": {"stage": "pretrain"}}]


def finish(bench: Bench) -> None:
    """A cache and a run of two stages, to the end."""
    bench.apply(CACHE, a_training_run("drive", "town", stages=STAGES))
    bench.wait_phase("trun", "drive", "Succeeded", "Failed", within_s=bench.patience_s)


def cancel(bench: Bench) -> None:
    """A run is suspended while it trains, and deleted."""
    bench.driver.script.held.add("pretrain")
    bench.apply(CACHE, a_training_run("drive", "town"))
    bench.wait_phase("trun", "drive", "Running", within_s=bench.patience_s)
    _patch(bench, suspend=True)
    bench.wait_phase("trun", "drive", "Suspended", within_s=bench.patience_s)
    bench.kubectl("delete", "trun", "drive", "--timeout=300s")
    wait_for(
        "the cache to be free", lambda: bench.status("dsc", "town").get("usedBy", []) == [], within_s=bench.patience_s
    )


def edit(bench: Bench) -> None:
    """Policies are changed and the run is suspended and resumed while it trains."""
    bench.driver.script.held.add("pretrain")
    bench.apply(CACHE, a_training_run("drive", "town"))
    bench.wait_phase("trun", "drive", "Running", within_s=bench.patience_s)
    _patch(bench, failurePolicy={"maxRestarts": 1}, ttlSecondsAfterFinished=3600)
    _patch(bench, suspend=True)
    bench.wait_phase("trun", "drive", "Suspended", within_s=bench.patience_s)
    bench.driver.script.held.clear()
    _patch(bench, suspend=False)
    bench.wait_phase("trun", "drive", "Succeeded", "Failed", within_s=bench.patience_s)


def recreate(bench: Bench) -> None:
    """A run is deleted and made again at once under its name."""
    bench.driver.script.held.add("pretrain")
    bench.apply(CACHE, a_training_run("drive", "town"))
    bench.wait_phase("trun", "drive", "Running", within_s=bench.patience_s)
    bench.kubectl("delete", "trun", "drive", "--timeout=300s")
    bench.driver.script.held.clear()
    bench.apply(a_training_run("drive", "town"))
    bench.wait_phase("trun", "drive", "Succeeded", "Failed", within_s=bench.patience_s)


def failing_rank(bench: Bench) -> None:
    """One rank of the first attempt fails."""
    bench.driver.script.exits[("pretrain", 1, 1)] = Exit(1, "RuntimeError: the wheel came off")
    bench.apply(CACHE, a_training_run("drive", "town"))
    bench.wait_phase("trun", "drive", "Succeeded", "Failed", within_s=bench.patience_s)


def build(bench: Bench) -> None:
    """A cache whose only build pod fails once: of two, whichever comes first may finish for both."""
    bench.driver.script.exits[("", 1, 0)] = Exit(1, "OSError: a bad sector")
    bench.apply(a_dataset_cache("town", "datasets/town", build={"parallelism": 1}))
    bench.wait_phase("dsc", "town", "Ready", "Failed", within_s=bench.patience_s)


def shared_cache(bench: Bench) -> None:
    """Two runs wait for one cache and train from it."""
    bench.apply(CACHE, a_training_run("drive", "town"), a_training_run("park", "town"))
    for name in ("drive", "park"):
        bench.wait_phase("trun", name, "Succeeded", "Failed", within_s=bench.patience_s)


def collect(bench: Bench) -> None:
    """A run that goes by itself when its time after the end is over."""
    bench.apply(CACHE, a_training_run("drive", "town", ttlSecondsAfterFinished=0, cleanPodPolicy="All"))
    wait_for("the run's first status", lambda: bench.status("trun", "drive"), within_s=bench.patience_s)
    wait_for("the run to be gone", lambda: not bench.items("trun"), within_s=bench.patience_s)


WORKLOADS: dict[str, Callable[[Bench], None]] = {
    story.__name__: story for story in (finish, cancel, edit, recreate, failing_rank, build, shared_cache, collect)
}


def describe_end(bench: Bench) -> dict[str, Any]:
    """Returns the end of a story: resources, children of those that exist, and committed manifests.

    Services of runs and pods of caches only as long as those have not ended: pods that are played may end a run before
    its service was taken, or a build before its second pod was made; real ones wait for both.
    """
    found = {kind: bench.items(kind) for kind in ("trun", "dsc", "pod", "service")}
    names = {item["metadata"]["uid"]: item["metadata"]["name"] for kind in ("trun", "dsc") for item in found[kind]}
    ended = {
        item["metadata"]["uid"]: "service" if kind == "trun" else "pod"
        for kind in ("trun", "dsc")
        for item in found[kind]
        if item.get("status", {}).get("phase") in ENDED
    }
    keys = [info.key for info in bench.store.list("runs/") if "/manifest/" in info.key]
    return {
        "runs": {item["metadata"]["name"]: _run(item) for item in found["trun"]},
        "caches": {item["metadata"]["name"]: _cache(item) for item in found["dsc"]},
        "children": sorted(
            f"{kind} {item['metadata']['name']} of {names[owner['uid']]} {item['status'].get('phase', '')}"
            for kind in ("pod", "service")
            for item in found[kind]
            for owner in item["metadata"].get("ownerReferences", [])
            if owner["uid"] in names and ended.get(owner["uid"]) != kind
        ),
        "manifests": sorted(
            "/".join([names[uid], *rest])
            for uid, *rest in (key.removeprefix(f"runs/{bench.namespace}/").split("/") for key in keys)
            if uid in names
        ),
    }


def _run(body: dict[str, Any]) -> dict[str, Any]:
    status = body.get("status", {})
    return {
        "phase": status.get("phase"),
        "current": status.get("observedGeneration") == body["metadata"]["generation"],
        "stages": [
            [s["name"], s["seed"], s["phase"], s["attempt"], s["progress"]["epoch"]] for s in status.get("stages", [])
        ],
        "restarts": status.get("restarts"),
        "checkpoint": newest_entry(status)["checkpoint"].get("step"),
        # A manifest names keys of its own namespace, so its SHA-256 is another in each trial.
        "datasets": [[dataset["name"], dataset["digest"]] for dataset in status.get("datasets", [])],
        # Whether a config was checked ahead depends on how long the run waited, which a fault may change.
        "conditions": sorted(
            f"{c['type']}={c['status']} {c['reason']}"
            for c in status.get("conditions", [])
            if c["type"] != "ConfigChecked"
        ),
    }


def _cache(body: dict[str, Any]) -> dict[str, Any]:
    status = body.get("status", {})
    wanted = ("phase", "digest", "observedGeneration")
    return {key: status.get(key) for key in wanted} | {
        "conditions": sorted(c["type"] + c["status"] for c in status.get("conditions", []))
    }


def _patch(bench: Bench, **spec: Any) -> None:
    bench.kubectl("patch", "trun", "drive", "--type=merge", "-p", json.dumps({"spec": spec}))
