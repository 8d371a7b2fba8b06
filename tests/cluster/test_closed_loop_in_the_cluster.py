"""The closed loop on a real cluster: a scripted simulator drives with a run's weights while the run trains on."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from lead_protocol.closed_loop_record import parse_closed_loop
from lead_protocol.object_keys import ClosedLoopKeys
from lead_testing.installed import Installed, conditions, upload_tree
from lead_testing.live_runs import epoch_of
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_trainer.example_worlds.lead.tree import write_example_tree

RUN = "closed-loop"
# Stands for CARLA: it looks at what it was given, tries what it may not do, and writes what the Leaderboard would.
SIMULATOR = """
import json, os, pathlib, socket
given = {name: os.environ[f"LEAD_CLOSED_LOOP_{name}"] for name in ("CHECKPOINT", "ROUTES", "RESULTS", "EPOCH")}
weights = sorted(path.name for path in pathlib.Path(given["CHECKPOINT"]).iterdir())
assert weights[0] == "config.json" and weights[1].startswith("model_"), weights
routes = sorted(path.stem for path in pathlib.Path(given["ROUTES"]).glob("*.xml"))
assert not [name for name in os.environ if name.startswith(("LEAD_S3", "LEAD_ST"))]
for path in ("/etc/lead", "/var/run/secrets/lead", "/var/run/secrets/kubernetes.io"):
    assert not os.path.exists(path), path
try:
    pathlib.Path(given["CHECKPOINT"], "mine").write_text("x")
except OSError:
    pass
else:
    raise SystemExit("the weights can be written")
out = pathlib.Path(given["RESULTS"])
records = [{"route_id": route, "status": "Completed", "infractions": {"red_light": []},
            "scores": {"score_route": 100.0, "score_penalty": 1.0, "score_composed": 70.0},
            "meta": {"route_length": 500.0}} for route in routes]
(out / "result.json").write_text(json.dumps({"_checkpoint": {"progress": [3, 3], "records": records}}))
(out / "ego_motion.csv").write_text("time_s,vx_mps,vy_mps\\n0,0,0\\n1,1,0\\n2,4,0\\n")
"""


@pytest.fixture(scope="module")
def trained(
    installed: Installed, images: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:  # fmt: skip
    """The name of a run that trains and drives with its first epoch's weights."""
    tree = tmp_path_factory.mktemp("lead") / "tree"
    write_example_tree(tree, routes=2, frames=12, seed=1)
    with installed.store() as store:
        upload_tree(store, tree, "datasets/driven")
        for route in ("a", "b"):
            store.put(f"weights/{installed.namespace}/routes/{route}.xml", b"<routes/>")
    loop = {
        "image": images["trainer"],
        "command": ["python", "-c", SIMULATOR],
        "routes": {"prefix": f"weights/{installed.namespace}/routes"},
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        "timeoutSeconds": 120,
        "regression": {"maxDrop": 5},
    }
    stages = [{"name": "pretrain", "epochs": 1000}]
    installed.apply_anew(a_dataset_cache("driven", "datasets/driven", collections=["full_pretrain"]))
    installed.apply_anew(a_training_run(RUN, "driven", nodes=1, stages=stages, closedLoop=loop))
    installed.wait_for("an epoch", lambda: epoch_of(installed, RUN) >= 1, deadline_s=600)
    yield RUN
    for kind, name in (("trainingrun", RUN), ("datasetcache", "driven")):
        installed.run("kubectl", "delete", kind, name, "--wait=false")


def loop_of(installed: Installed) -> dict[str, Any]:
    return dict(installed.status("trainingrun", RUN).get("closedLoop") or {})


def patch(installed: Installed, **loop: Any) -> None:
    installed.kubectl(
        "patch", "trainingrun", RUN, "--type=merge", "-p", json.dumps({"spec": {"closedLoop": loop}})
    )  # fmt: skip


def test_weights_are_driven_beside_training_when_due_and_once_by_annotation(installed: Installed, trained: str) -> None:
    found = installed.wait_for("a result", lambda: loop_of(installed).get("drivingScore") and loop_of(installed))
    assert found["drivingScore"] == "70" and found["success"] == {"wholeRoute": "66.67", "bench2Drive": "66.67"}
    assert (found["routes"], found["recorded"], found["maxAcceleration"]) == (3, 2, "3")
    patch(installed, everyEpochs=0)
    installed.kubectl("annotate", "trainingrun", RUN, "lead.dev/closed-loop=by-hand", "--overwrite")
    asked = installed.wait_for(
        "the one asked for", lambda: loop_of(installed).get("requested") == "by-hand" and loop_of(installed)
    )
    assert asked["attempt"] > found["attempt"] and asked["epoch"] >= found["epoch"]
    assert "% (epoch" in installed.read("get", "trainingrun", RUN, "-o", "wide")

    uid = installed.get("trainingrun", RUN)["metadata"]["uid"]
    keys = ClosedLoopKeys(installed.namespace, uid, "pretrain", 0)
    with installed.store() as store:
        manifest = parse_closed_loop(store.get(keys.manifest(asked["attempt"]), max_bytes=2**20))
        below = [info.key for info in store.list(keys.results(asked["epoch"], asked["attempt"]))]
    assert manifest is not None and manifest.request == "by-hand" and len(manifest.pod_uid) == 36
    assert [key.rsplit("/", 1)[1] for key in below] == ["files.json", "ego_motion.csv", "result.json", "summary.json"]


def test_a_missing_image_and_a_hang_are_told_and_training_goes_on(installed: Installed, trained: str) -> None:
    own = installed.get("trainingrun", RUN)["spec"]["closedLoop"]["image"]
    patch(installed, everyEpochs=0, image="registry.invalid/carla:none")
    installed.kubectl("annotate", "trainingrun", RUN, "lead.dev/closed-loop=missing", "--overwrite")

    def condition_with(words: tuple[str, ...]) -> str:
        text = conditions(installed.status("trainingrun", RUN)).get("ClosedLoop", "")
        return text if any(word in text for word in words) else ""

    shown = installed.wait_for("the missing image", lambda: condition_with(("ImagePull", "ErrImage")))
    assert shown.startswith("Unknown") and "registry.invalid/carla:none" in shown and "closedLoop.image" in shown
    patch(installed, image=own, command=["sleep", "3600"], timeoutSeconds=15)
    installed.kubectl("delete", "pod", "-l", "lead.dev/role=closed-loop", "--wait=false")
    installed.wait_for("the hang", lambda: condition_with(("timeoutSeconds (15 s)",)))
    status = installed.status("trainingrun", RUN)
    assert (status["phase"], status["restarts"]["total"]) == ("Running", 0), conditions(status)
