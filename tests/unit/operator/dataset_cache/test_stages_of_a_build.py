"""Stages of a DatasetCache's build: which pods come when, with what, what status shows, and what outlives it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lead_operator.bucket.build_records import read_build
from lead_operator.bucket.record_reader import Records
from lead_operator.cli.render import render_body
from lead_operator.decisions.dataset_cache.health import HANG_S
from lead_operator.decisions.dataset_cache.plan import MANIFEST_WAIT_S, decide_dataset_cache
from lead_operator.decisions.observed import BuildReport, ObservedBuild, ObservedCacheManifest, ObservedPod
from lead_operator.decisions.plan import Plan
from lead_operator.errors import SpecError
from lead_operator.kube.observe import expected_build_pods
from lead_operator.names import Label
from lead_operator.resources.crd_defaults import fill_defaults
from lead_operator.resources.dataset_cache import DatasetCache
from lead_protocol.environment import JOB_ANNOTATION
from lead_protocol.job import BuildJob, parse_job
from lead_protocol.job_access import job_access
from lead_protocol.object_keys import BuildKeys
from lead_protocol.progress_record import BuildRecord
from lead_protocol.store.folder import FolderStore
from lead_testing.makers import CACHE_UID, DIGEST, NOW, SETTINGS, a_cache_body, a_dataset_cache, a_pod
from lead_testing.parsed_statuses import cache_status

GPU = {"limits": {"nvidia.com/gpu": 1}}
STAGES = [
    {"name": "extract", "workers": 2},
    {"name": "labels", "resources": GPU},
    {"name": "history", "after": ["extract", "labels"]},
]
MANIFEST = ObservedCacheManifest(DIGEST, 17, 9, {}, 1234, 12, 1288490189)
COMPLETE: dict[str, Any] = {"result_digest": DIGEST, "manifest": MANIFEST}
Share = tuple[str, int]


def staged(*, stages: Any = STAGES, **build: Any) -> DatasetCache:
    return a_dataset_cache(build={"parallelism": 1, "stages": stages, **build})


def decide(cache: DatasetCache, previous: dict[str, Any] | None = None, *pods: ObservedPod, **fields: Any) -> Plan:
    seconds = fields.pop("after_s", 0)
    observed = ObservedBuild(now=NOW + timedelta(seconds=seconds), previous=previous or {}, pods=pods, **fields)
    plan = decide_dataset_cache(cache, observed, SETTINGS)
    fill_defaults({**a_cache_body(), "status": plan.status})  # the CRD knows every field of the status
    return plan


def a_stage_pod(stage: str, index: int = 0, attempt: int = 1, **fields: Any) -> ObservedPod:
    part = f"-{stage}" if stage else ""
    name = f"towns-build{part}-g1-a{attempt}-{index}"
    label = stage or "merge"
    return a_pod(index, name=name, uid=name, role="build", stage=label, attempt=attempt, **fields)


def succeeded(*shares: Share) -> list[ObservedPod]:
    return [a_stage_pod(*share, phase="Succeeded", exit_code=0, finished_at=NOW) for share in shares]


def made(plan: Plan) -> list[str]:
    return [each["metadata"]["name"].removeprefix("towns-build") for each in plan.creates]


def phases(plan: Plan) -> dict[str, str]:
    return {each["name"]: each["phase"] for each in plan.status["stages"]}


def entry(plan: Plan, name: str) -> dict[str, Any]:
    return next(each for each in plan.status["stages"] if each["name"] == name)


def message(plan: Plan) -> str:
    return next(str(each["message"]) for each in plan.status["conditions"] if each["type"] == "Ready")


FIRST: list[Share] = [("extract", 0), ("extract", 1), ("labels", 0)]


@pytest.mark.parametrize(
    ("done", "next_pods", "told"),
    [
        pytest.param([], ["-extract-g1-a1-0", "-extract-g1-a1-1", "-labels-g1-a1-0"], "RRPP", id="two stages at once"),
        pytest.param(FIRST[:2], [], "SRPP", id="history waits for the labels"),
        pytest.param(FIRST[:1] + FIRST[2:], [], "RSPP", id="history waits for every worker of extract"),
        pytest.param(FIRST, ["-history-g1-a1-0"], "SSRP", id="history"),
        pytest.param([*FIRST, ("history", 0)], ["-g1-a1-0"], "SSSR", id="the rest, under today's name"),
    ],
)
def test_a_stage_begins_when_those_it_names_are_complete(done: list[Share], next_pods: list[str], told: str) -> None:
    cache = staged()
    status = decide(cache).status
    pods = [a_stage_pod(*share) for share in FIRST if share not in done]
    for share in done:  # one after another, as passes see them
        status = decide(cache, status, *pods, *succeeded(*done[: done.index(share) + 1])).status
    plan = decide(cache, {} if not done else status, *([] if not done else pods), *succeeded(*done))
    begun = {each["stage"] for each in plan.status["build"]["workers"] if each.get("stage") and each["attempt"]}
    assert made(plan) == next_pods
    assert "".join(phase[0] for phase in phases(plan).values()) == told
    assert list(phases(plan)) == ["extract", "labels", "history", "merge"]
    assert begun >= {"extract", "labels"} and plan.status["phase"] == "Building"


def test_without_stages_pods_and_status_are_what_they_were() -> None:
    plan = decide(a_dataset_cache())
    assert made(plan) == ["-g1-a1-0", "-g1-a1-1"]
    assert not {"stage", "stages"} & plan.status.keys()
    assert all("stage" not in worker for worker in plan.status["build"]["workers"])
    assert all(Label.STAGE not in pod["metadata"]["labels"] for pod in plan.creates)


def job_of(pod: dict[str, Any]) -> BuildJob:
    job = parse_job(pod["metadata"]["annotations"][JOB_ANNOTATION])
    assert isinstance(job, BuildJob)
    return job


def test_lead_render_shows_the_pods_of_every_stage_and_a_gpu_stands_on_one_alone() -> None:
    pods = render_body({**a_cache_body(build={"parallelism": 3, "stages": STAGES}), "status": {}})
    shown = [
        (pod["metadata"]["labels"][Label.STAGE], job_of(pod).stage, job_of(pod).index, job_of(pod).parallelism)
        for pod in pods
    ]
    assert shown == [
        ("extract", "extract", 0, 2), ("extract", "extract", 1, 2), ("labels", "labels", 0, 1),
        ("history", "history", 0, 1), ("merge", "", 0, 3), ("merge", "", 1, 3), ("merge", "", 2, 3),
    ]  # fmt: skip
    assert [job_of(pod).made for pod in pods[3:5]] == [["extract", "labels"], ["extract", "labels", "history"]]
    assert {tuple(job_of(pod).stages) for pod in pods} == {("extract", "labels", "history")}
    limits = [pod["spec"]["containers"][0]["resources"]["limits"] for pod in pods]
    assert ["nvidia.com/gpu" in each for each in limits] == [False, False, True, False, False, False, False]
    assert {each["memory"] for each in limits} == {"2Gi"}, "what a stage does not name is the build's"


def test_every_pod_reads_and_writes_below_its_own_build_alone() -> None:
    """What stages leave for one another lies where the session policy of each lets it write, and nowhere else."""
    keys = BuildKeys("team-a", CACHE_UID)
    output = keys.staged(DIGEST).stage_output("labels", 7)
    assert output == f"builds/team-a/{CACHE_UID}/staged/{DIGEST}/stages/labels/00000007"
    for pod in render_body(a_cache_body(build={"stages": STAGES})):
        access = job_access(job_of(pod))
        assert access.writes == (keys.prefix,) and keys.prefix in access.reads
        assert output.startswith(access.writes) and job_of(pod).progress_key.startswith(access.writes)


def test_a_share_of_a_stage_is_tried_again_alone_with_the_same_accounts() -> None:
    cache, others = staged(maxRetries=2), [a_stage_pod("extract", index) for index in (0, 1)]
    status, after_s = decide(cache).status, 0.0
    for attempt in (1, 2, 3):
        killed = a_stage_pod("labels", attempt=attempt, phase="Failed", exit_code=1, finished_at=NOW)
        accounted = decide(cache, status, *others, killed, after_s=after_s)
        assert accounted.claim_attempt and accounted.status["lastFailure"]["pod"] == killed.name
        if attempt == 2:
            assert entry(accounted, "labels")["message"] == "1 shares are tried again"
        if attempt < 3:
            after_s += 600
            again = decide(cache, accounted.status, *others, killed, after_s=after_s)
            assert made(again) == [f"-labels-g1-a{attempt + 1}-0"]
            status = again.status
    failed = accounted
    assert failed.status["phase"] == "Failed" and failed.status["reason"] == "MaxRetries"
    assert phases(failed) == {"extract": "Pending", "labels": "Failed", "history": "Pending", "merge": "Pending"}
    assert "share 0 of stage labels failed 3 times (build.maxRetries)" in message(failed)
    assert sorted(pod.name for pod in failed.deletes) == [pod.name for pod in others]


def test_a_mistake_that_a_stage_finds_fails_the_build_and_names_the_stage() -> None:
    text = "spec.build.stages: found 'lables'; recipe distill offers extract, labels with this config"
    wrong = a_stage_pod("extract", phase="Failed", exit_code=64, finished_at=NOW, message=text)
    plan = decide(staged(), decide(staged()).status, wrong)
    accepted = next(each for each in plan.status["conditions"] if each["type"] == "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "BadConfig")
    assert text in accepted["message"]
    assert entry(plan, "extract")["message"].startswith("BadConfig: ")


def test_status_counts_samples_stage_by_stage_and_says_which_is_at_work() -> None:
    cache = staged()

    def word(stage: str, index: int, done: int, total: int) -> BuildReport:
        record = BuildRecord(attempt=1, seq=1, phase="Building", digest=DIGEST, samples_done=done, share_samples=total)
        return BuildReport(index, record, NOW, stage)

    reports = (word("extract", 0, 3, 10), word("extract", 1, 4, 10), word("labels", 0, 1, 20))
    waiting = a_stage_pod("labels", phase="Pending", waiting_reason="Unschedulable", waiting_message="no GPU")
    plan = decide(cache, decide(cache).status, *[a_stage_pod("extract", i) for i in (0, 1)], waiting, reports=reports)
    assert plan.status["display"]["stage"] == "extract,labels" and plan.status["digest"] == DIGEST
    assert entry(plan, "extract") == {
        "name": "extract", "phase": "Running", "pods": {"done": 0, "total": 2}, "samples": {"done": 7, "total": 20}
    }  # fmt: skip
    assert entry(plan, "labels")["message"] == "pods wait: Unschedulable"
    assert entry(plan, "history")["message"] == "waits for extract, labels"
    running = decide(cache, decide(cache).status, *[a_stage_pod(*share) for share in FIRST], reports=reports)
    assert message(running) == (
        "stage extract: 0 of 2 pods are done, 7 of 20 samples are made, "
        "stage labels: 0 of 1 pods are done, 1 of 20 samples are made"
    )
    assert "shards" not in plan.status, "samples of stages are no shards"
    ready = decide(cache, plan.status, **COMPLETE)
    assert set(phases(ready).values()) == {"Succeeded"} and "stage" not in ready.status["display"]


def test_an_erased_status_is_rebuilt_from_pods_and_records() -> None:
    """Of a stage whose pods are gone its last record counts: no GPU is asked for a second time."""
    cache = staged()
    finished = BuildRecord(attempt=3, seq=9, phase="Done", digest=DIGEST, samples_done=20, share_samples=20)
    halfway = finished.model_copy(update={"phase": "Building", "attempt": 1})
    reports = (BuildReport(0, finished, NOW, "labels"), BuildReport(1, halfway, NOW, "extract"))
    first = succeeded(("extract", 0))
    plan = decide(cache, {}, *first, reports=reports)
    workers = {(each.get("stage", ""), each["index"]): each for each in plan.status["build"]["workers"]}
    assert workers["labels", 0]["done"] and workers["labels", 0]["attempt"] == 3
    assert workers["extract", 0]["done"]
    assert made(plan) == ["-extract-g1-a1-1"], "its record says that it was not done"
    assert phases(plan) == {"extract": "Running", "labels": "Succeeded", "history": "Pending", "merge": "Pending"}


def test_without_a_manifest_all_stages_begin_again() -> None:
    """A source that changed between two stages leaves the last one without their outputs, and none commits."""
    cache, done = staged(), succeeded(*FIRST, ("history", 0), ("", 0))
    status = decide(cache).status
    for _ in range(4):
        status = decide(cache, status, *done).status
    assert all(worker["done"] for worker in status["build"]["workers"])
    again = decide(cache, status, *done, after_s=MANIFEST_WAIT_S + 1)
    assert (again.status["reason"], again.status["build"]["rebuilds"]) == ("SourceChanged", 1)
    assert {worker["done"] for worker in again.status["build"]["workers"]} == {False}
    anew = decide(cache, again.status, *done, after_s=MANIFEST_WAIT_S + 2)
    assert made(anew) == ["-extract-g1-a2-0", "-extract-g1-a2-1", "-labels-g1-a2-0"]


def test_a_silent_pod_of_a_stage_is_judged_by_its_own_records() -> None:
    cache = staged()
    old = decide(cache).status
    heard = BuildRecord(attempt=1, seq=1, phase="Building", digest=DIGEST)
    reports = (BuildReport(0, heard, NOW, "labels"), BuildReport(0, heard, NOW + timedelta(seconds=HANG_S), "extract"))
    begun: dict[str, Any] = {"created_at": NOW, "started_at": NOW}
    plan = decide(cache, old, *[a_stage_pod(*share, **begun) for share in FIRST], reports=reports, after_s=HANG_S + 5)
    assert plan.status["lastFailure"]["reason"] == "Hung"
    assert plan.status["lastFailure"]["pod"] in ("towns-build-labels-g1-a1-0", "towns-build-extract-g1-a1-1")
    ended = {(each["stage"], each["index"]) for each in plan.status["build"]["workers"] if each["endedAttempt"]}
    assert ended == {("labels", 0), ("extract", 1)}


def test_records_of_stages_are_read_from_keys_of_their_own(tmp_path: Any) -> None:
    store, keys = FolderStore(tmp_path), BuildKeys("team-a", CACHE_UID)
    for number, key in enumerate((keys.progress(1, 0), keys.progress(1, 0, "labels"), keys.progress(1, 1, "labels"))):
        record = BuildRecord(attempt=1, seq=number, phase="Building", samples_done=number)
        store.put(key, record.model_dump_json().encode())
    seen = read_build(store, Records(), keys, 1, shares=1, now=NOW, stages=[("labels", 2)])
    assert [(word.stage, word.index, word.record.seq) for word in seen.reports] == [
        ("labels", 0, 1), ("labels", 1, 2), ("", 0, 0)
    ]  # fmt: skip


def test_pods_that_no_copy_shows_are_asked_for_by_the_names_of_their_stages() -> None:
    cache = staged()
    seen = decide(cache, decide(cache).status, *[a_stage_pod(*share) for share in FIRST])
    assert list(expected_build_pods(cache, cache_status(seen.status))) == [a_stage_pod(*share).name for share in FIRST]


def test_a_pod_that_was_killed_for_memory_names_the_resources_of_its_stage() -> None:
    cache = staged()
    killed = a_stage_pod("labels", phase="Failed", exit_code=137, reason="OOMKilled", finished_at=NOW)
    plan = decide(cache, decide(cache).status, killed)
    assert "more memory than build.stages[1].resources.limits.memory" in plan.status["lastFailure"]["message"]


def test_resources_of_a_stage_that_make_invalid_pods_are_named() -> None:
    cache = staged()
    done = succeeded(("extract", 0), ("extract", 1))
    refusal = (
        'Pod team-a/towns-build-labels-g1-a1-0: Pod "towns-build-labels-g1-a1-0" is invalid: '
        "spec.containers[0].resources.requests: Required value: Limit must be set for non overcommitable resources"
    )
    plan = decide(cache, decide(cache).status, *done, apply_error=refusal)
    assert plan.status["reason"] == "BadSpec"
    assert "spec.build.stages[1].resources.requests: Required value" in message(plan)


def test_stages_may_change_while_a_cache_is_complete() -> None:
    """They do not change its result: nothing is built again."""
    cache = a_dataset_cache()
    ready = decide(cache, **COMPLETE).status
    edited = a_dataset_cache(generation=2, build={"parallelism": 1, "stages": STAGES})
    plan = decide(edited, ready, **COMPLETE)
    assert (plan.status["phase"], plan.creates, plan.status["build"]["generation"]) == ("Ready", (), 1)


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ([{"name": "a"}, {"name": "a"}], r"spec\.build\.stages\[1\]\.name is 'a', the name of an earlier stage"),
        ([{"name": "merge"}], "'merge', the name of the build's last stage"),
        ([{"name": "a", "after": ["b"]}, {"name": "b", "after": ["a"]}],
         r"spec\.build\.stages\[0\]\.after names 'b', expected stages that stand before 'a' \(none\)"),
        ([{"name": "a", "after": ["a"]}], r"after names 'a'"),
        ([{"name": "a"}, {"name": "b", "after": ["c"]}], r"'c', expected stages that stand before 'b' \(a\)"),
    ],
)  # fmt: skip
def test_an_order_that_cannot_be_is_refused_with_the_entry(stages: list[Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        staged(stages=stages)


def test_what_a_stage_waits_for_includes_what_that_waits_for() -> None:
    cache = staged(stages=[{"name": "a"}, {"name": "b", "after": ["a"]}, {"name": "c", "after": ["b"]}, {"name": "d"}])
    assert [stage.after for stage in cache.stages] == [(), ("a",), ("a", "b"), (), ("a", "b", "c", "d")]
    assert replace(cache.stages[2]).shown_name == "c" and cache.last_stage.shown_name == "merge"
