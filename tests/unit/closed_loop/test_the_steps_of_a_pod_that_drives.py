"""What the trainer image does before and after a user's program drives: weights and routes in, results out."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lead_protocol.closed_loop_record import parse_closed_loop
from lead_protocol.job import ClosedLoopJob, OwnerIdentity
from lead_protocol.store.folder import FolderStore
from lead_testing.toy_runs import toy_recipe_installed
from lead_trainer.cli import main
from lead_trainer.commands.train import train_locally
from lead_trainer.engine.checkpoints.instances import instance_manifests
from lead_trainer.local.store import NAMESPACE, UID, store_in


class Pod:
    """The two containers of one attempt, and what lies between them."""

    def __init__(self, folder: Path, store: FolderStore, job: ClosedLoopJob) -> None:
        self.store, self.job, self.log, self.folder = store, job, folder / "termination-log", folder
        self.bundle, self.routes, self.results = folder / "checkpoint", folder / "routes", folder / "results"
        self.results.mkdir(parents=True)

    def run(self, step: str) -> int:
        """Runs one of the trainer's containers; returns its exit code."""
        (self.folder / "job.json").write_text(self.job.model_dump_json())
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {
                "LEAD_STORE_URL": self.store.url,
                "LEAD_CLOSED_LOOP_STEP": step,
                "LEAD_CLOSED_LOOP_CHECKPOINT": str(self.bundle),
                "LEAD_CLOSED_LOOP_ROUTES": str(self.routes),
                "LEAD_CLOSED_LOOP_RESULTS": str(self.results),
                "LEAD_POD_UID": "pod-uid",
            }.items():
                patch.setenv(name, value)
            paths = ("--job", str(self.folder / "job.json"), "--termination-log", str(self.log))
            return main(["pod", *paths, "--scratch", str(self.folder), "--session-cache", str(self.folder)])

    def drive(self, score: float = 80.0, **record: Any) -> None:
        """Writes what a simulator would."""
        scores = {"score_route": 100.0, "score_penalty": 1.0, "score_composed": score}
        found = {"route_id": "r", "status": "Completed", "infractions": {"red_light": ["a light"]}, "scores": scores,
                 "meta": {"route_length": 500.0}, **record}  # fmt: skip
        document = {"_checkpoint": {"progress": [1, 2], "records": [found]}}
        (self.results / "result.json").write_text(json.dumps(document))

    def keys(self) -> list[str]:
        return [info.key.removeprefix(self.job.keys.prefix) for info in self.store.list(self.job.keys.prefix)]


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    """A pod of attempt 2 over the newest checkpoint of a toy run."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with toy_recipe_installed(tmp_path):
        train_locally(["recipe=toy", f"logdir={tmp_path / 'run'}", "epochs=1"], [], {})
        store = store_in(tmp_path / "run")
        assert isinstance(store, FolderStore)
        job = a_job(store)
        yield Pod(tmp_path / "pod", store, job)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def a_job(store: FolderStore) -> ClosedLoopJob:
    owner = OwnerIdentity(namespace=NAMESPACE, name="run", uid=UID)
    empty = ClosedLoopJob(owner=owner, stage="train", seed=0, attempt=2, epoch=1, step=0, checkpoint_prefix="")
    (manifest,) = instance_manifests(store, empty.instance)
    prefix = empty.instance.checkpoint(manifest.step, manifest.attempt, manifest.nonce)
    return empty.model_copy(update={"step": manifest.step, "checkpoint_prefix": prefix})


def test_weights_are_fetched_as_the_agent_reads_them_and_routes_beside_them(pod: Pod) -> None:
    pod.store.put("weights/local/routes/town01/a.xml", b"<routes/>")
    pod.store.put("weights/local/routes-of-others/b.xml", b"<routes/>")
    pod.job = pod.job.model_copy(update={"routes_prefix": "weights/local/routes"})
    assert pod.run("fetch") == 0
    assert sorted(path.name for path in pod.bundle.iterdir()) == ["config.json", "model_0000_0.pth"]
    assert [str(path.relative_to(pod.routes)) for path in pod.routes.rglob("*.xml")] == ["town01/a.xml"]


def test_a_checkpoint_that_was_removed_since_ends_the_pod_with_what_happened(pod: Pod) -> None:
    pod.job = pod.job.model_copy(update={"checkpoint_prefix": pod.job.instance.checkpoint(999, 1, "gone")})
    assert pod.run("fetch") == 65
    assert "is no valid checkpoint, or was removed since" in pod.log.read_text()


def test_results_are_published_with_their_commit_last(pod: Pod) -> None:
    pod.drive()
    (pod.results / "video").mkdir()
    (pod.results / "video/front.mp4").write_bytes(b"frames")
    (pod.results / "secret").symlink_to("/etc/passwd")
    assert pod.run("publish") == 0
    names = ["files.json", "files/result.json", "files/video/front.mp4", "summary.json"]
    assert pod.keys() == [*(f"0001/000002/{name}" for name in names), "manifest/000002.json"]
    manifest = parse_closed_loop(pod.store.get(pod.job.keys.manifest(2), max_bytes=2**20))
    assert manifest is not None
    assert (manifest.attempt, manifest.pod_uid, manifest.step) == (2, "pod-uid", pod.job.step)
    numbers = manifest.numbers
    assert (numbers.driving_score, numbers.success_whole_route, numbers.routes, numbers.recorded) == (80.0, 0.0, 2, 1)
    assert numbers.infractions_per_km == {"red_light": 2.0} and numbers.max_jerk is None


def test_another_result_of_the_same_attempt_replaces_nothing(pod: Pod) -> None:
    pod.drive(80.0)
    assert pod.run("publish") == 0
    first = pod.store.get(pod.job.keys.manifest(2), max_bytes=2**20)
    pod.drive(99.0)
    assert pod.run("publish") == 65 and "is in the store already" in pod.log.read_text()
    assert pod.store.get(pod.job.keys.manifest(2), max_bytes=2**20) == first


SCORES = {"score_route": 100.0, "score_penalty": 1.0, "score_composed": 80.0}
HOSTILE = {
    "nothing": (None, "holds no result file of the Leaderboard"),
    "no JSON": ('{"_checkpoint": ', "is no result file of the Leaderboard"),
    "another schema": ('{"_checkpoint": {"records": {}}}', "result.json is no result file"),
    "NaN": ('{"_checkpoint": {"records": [{"route_id": "r", "status": "x", "infractions": {}, "scores": '
            '{"score_route": NaN, "score_penalty": 1, "score_composed": 1}}]}}', "score_route"),
    "a score above all": (json.dumps({"_checkpoint": {"records": [{"route_id": "r", "status": "x", "infractions": {},
                          "scores": {**SCORES, "score_composed": 1e300}}]}}), "score_composed"),
    "a kind that steers a terminal": (json.dumps({"_checkpoint": {"records": [{"route_id": "r", "status": "x",
        "infractions": {"\x1b[31m": ["a"]}, "scores": SCORES, "meta": {"route_length": 10.0}}]}}),
        "the results cannot be reported: infractions_per_km"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_results_that_are_none_are_named_and_commit_nothing(pod: Pod, case: str) -> None:
    written, text = HOSTILE[case]
    if written is not None:
        (pod.results / "result.json").write_text(written)
    assert pod.run("publish") == 65
    assert text in pod.log.read_text() and pod.keys() == []


def test_a_huge_result_file_is_not_read(pod: Pod) -> None:
    with (pod.results / "result.json").open("wb") as file:
        file.write(b'{"_checkpoint": ')
        file.truncate(17 * 1024 * 1024)
    assert pod.run("publish") == 65 and "a result file has at most 16777216" in pod.log.read_text()


def test_an_operator_of_another_version_is_named(pod: Pod) -> None:
    assert pod.run("drive") == 64
