"""`lead_client.Cluster()` against a real API server: mistakes, outages, and what a run has written."""

import base64
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from lead_client import Cluster, DatasetCache, TrainingRun
from lead_client.errors import (
    ClientError,
    InvalidObject,
    NoCheckpoint,
    NotAllowed,
    NotFound,
    RunFailed,
    StoreNotReachable,
    WaitTimeout,
)
from lead_protocol.exit_codes import ExitCode
from lead_testing import PROJECT_ROOT
from lead_testing.api_bench import Bench, kubeconfig_of
from lead_testing.minio_server import ROOT_PASSWORD, ROOT_USER
from lead_testing.pod_driver import Exit

TOWN: dict[str, Any] = {"recipe": "lead", "source": {"prefix": "datasets/town"}}
RUN: dict[str, Any] = {"recipe": "lead", "datasets": [{"cache_ref": {"name": "town"}}]}
LONGEST_S = 180
EXAMPLES = PROJECT_ROOT / "operator/lead_client/examples"
FIXED = "fixed after creation; create a new run (checkpoint.from continues this one)"
TWO = [{"name": "a"}, {"name": "b"}]


def cluster(bench: Bench) -> Cluster:
    return Cluster(bench.namespace, kubeconfig=str(bench.plane.kubeconfig))


def run_with(**spec: Any) -> TrainingRun:
    return TrainingRun("bad", **{**RUN, **spec})


def cache_with(**spec: Any) -> DatasetCache:
    return DatasetCache("bad", **{**TOWN, **spec})


REJECTED: list[tuple[TrainingRun | DatasetCache, str]] = [
    (TrainingRun("Night", **RUN), "metadata.name: Invalid value"),
    (TrainingRun("x" * 300, **RUN), "metadata.name: Invalid value"),
    (TrainingRun("bad", labels={"a b": "c"}, **RUN), "metadata.labels"),
    (run_with(recipe=""), "spec.recipe"),
    (run_with(recipe="Lead"), "spec.recipe"),
    (run_with(datasets=[]), "spec.datasets"),
    (run_with(datasets=RUN["datasets"] * 2), "spec.datasets names one DatasetCache twice"),
    (run_with(datasets=[{"cache_ref": {"name": "Town"}}]), "spec.datasets[0].cacheRef.name"),
    (run_with(nodes=0), "spec.nodes: Invalid value: 0: spec.nodes in body should be greater than or equal to 1"),
    (run_with(nodes=1000), "spec.nodes in body should be less than or equal to 256"),
    (run_with(procs_per_node="Many"), "spec.procsPerNode"),
    (run_with(stages=[{"name": "a"}, {"name": "a"}]), "spec.stages has two stages of one name"),
    (run_with(stages=[{"name": "A"}]), "spec.stages[0].name"),
    (run_with(stages=[{"name": "a", "epochs": 0}]), "spec.stages[0].epochs"),
    (run_with(stages=[{"name": "a", "initFrom": {"stage": "b"}}]), "initFrom.stage must name a stage"),
    (run_with(stages=[{"name": "a", "initFrom": {}}]), "initFrom needs exactly one of stage and uri"),
    (run_with(stages=[{"name": "a", "initFrom": {"uri": "/tmp/x"}}]), "spec.stages[0].initFrom.uri"),
    (run_with(stages=[{"name": "a", "seeds": [1, 1]}]), "seeds has one seed twice"),
    (run_with(stages=[{"name": "a", "seeds": [-1]}]), "spec.stages[0].seeds[0]"),
    (run_with(stages=[{"name": "a", "kind": "Evaluation"}]), "give it initFrom"),
    (run_with(stages=TWO * 5), "spec.stages"),
    (run_with(parallelism=0), "spec.parallelism"),
    (run_with(parallelism=2, sessionCache={"medium": "PersistentVolume"}), "set sessionCache.medium to EmptyDir"),
    (run_with(checkpoint={"keepLast": 1}), "spec.checkpoint.keepLast"),
    (run_with(checkpoint={"everyEpochs": 0, "everySteps": 0}), "everyEpochs and everySteps are both 0"),
    (run_with(checkpoint={"from": "s3://b/x"}, stages=[{"name": "a", "initFrom": {"uri": "s3://b/y"}}]),
     "keep one of them"),
    (run_with(sessionCache={"storageClassName": "fast"}), "need medium PersistentVolume"),
    (run_with(sessionCache={"sizeLimit": "0Gi"}), "nothing would be cached; set a size above 0"),
    (run_with(failurePolicy={"fatalExitCodes": [75]}), "75 and 79 to 82 mean that another attempt can go on"),
    (run_with(failurePolicy={"hangTimeoutSeconds": 1}), "spec.failurePolicy.hangTimeoutSeconds"),
    (run_with(logging={"wandb": {"project": "x"}}), "mode Online needs secretName"),
    (run_with(scheduling={"priorityClassName": "system-node-critical"}), "this class is for the cluster's own pods"),
    (run_with(podOverrides={"labels": {"lead.dev/run": "x"}}), "are not yours to set"),
    (run_with(resources={"limits": {"memory": "much"}}), "spec.resources.limits.memory"),
    (run_with(config={f"k{number}": 1 for number in range(300)}), "spec.config"),
    (cache_with(source={"prefix": "a", "claimName": "b"}), "spec.source needs exactly one of prefix"),
    (cache_with(source={"prefix": "runs/x"}), "runs/, caches/, builds/ and control/ are what pods and operator write"),
    (cache_with(source={"prefix": "a", "path": "b"}), "put the folder into source.prefix instead"),
    (cache_with(expectDigest="abc"), "spec.expectDigest"),
    (cache_with(build={"stages": [{"name": "merge"}]}), "merge is the last stage"),
]  # fmt: skip


def test_forty_calls_with_bad_input_end_in_the_servers_sentence(bench: Bench) -> None:
    here = cluster(bench)
    assert len(REJECTED) == 40
    for manifest, sentence in REJECTED:
        with pytest.raises(InvalidObject) as caught:
            here.submit(manifest)
        assert sentence in str(caught.value), manifest.document()
    assert here.list() == [] and bench.items("dsc") == []


def test_calls_on_what_is_not_there_or_cannot_change_name_it(bench: Bench, tmp_path: Path) -> None:
    here = cluster(bench)
    run = here.submit(TrainingRun("drive", **RUN, nodes=2))
    assert here.submit(TrainingRun("drive", **RUN, nodes=2)).document() == run.document()  # changes nothing
    there = bench.plane.kubectl("create", "serviceaccount", "nobody", "-n", bench.namespace)
    assert "created" in there
    nobody = Cluster(bench.namespace, kubeconfig=str(kubeconfig_of(bench, "nobody", tmp_path / "kubeconfig")))
    calls: list[tuple[Callable[[], Any], type[ClientError], str]] = [
        (lambda: here.get("absent"), NotFound, 'trainingruns.lead.dev "absent" not found'),
        (lambda: here.cache("absent"), NotFound, 'datasetcaches.lead.dev "absent" not found'),
        (lambda: here.submit(TrainingRun("drive", namespace="absent", **RUN)), NotFound,
         'namespaces "absent" not found'),
        (lambda: run.scale(0), InvalidObject, "spec.nodes in body should be greater than or equal to 1"),
        (lambda: here.submit(TrainingRun("drive", **RUN, procs_per_node=3)), InvalidObject, FIXED),
        (run.checkpoint, NoCheckpoint, "TrainingRun drive has no checkpoint yet"),
        (run.load_model, NoCheckpoint, "TrainingRun drive has no checkpoint yet"),
        (run.metrics, NoCheckpoint, "TrainingRun drive has no event file yet"),
        (lambda: next(run.logs()), NotFound, "TrainingRun drive has no pod"),
        (lambda: run.wait(0.5), WaitTimeout, "TrainingRun drive has not ended within 0.5 s; it has no status yet"),
        (nobody.list, NotAllowed, 'cannot list resource "trainingruns" in API group "lead.dev"'),
        (lambda: nobody.submit(TrainingRun("other", **RUN)), NotAllowed, 'cannot patch resource "trainingruns"'),
    ]  # fmt: skip
    for call, kind, sentence in calls:
        with pytest.raises(kind) as caught:
            call()
        assert sentence in str(caught.value)
    run.delete()
    with pytest.raises(NotFound, match=r'trainingruns\.lead\.dev "drive" not found'):
        run.delete()


@pytest.fixture
def trained(bench: Bench) -> Iterator[Bench]:
    """A bench with its operator and a cache."""
    bench.operator.start()
    assert cluster(bench).submit(DatasetCache("town", **TOWN)).wait(LONGEST_S).phase == "Ready"
    yield bench


def test_a_run_is_watched_and_its_checkpoints_are_read_with_the_key_that_the_chart_names(
    trained: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    here = cluster(trained)
    run = here.submit(TrainingRun("drive", **RUN, stages=[{"name": "pretrain", "epochs": 2}]))
    assert run.watch(LONGEST_S).phase == "Succeeded"
    assert capsys.readouterr().out.splitlines()[-1].startswith("TrainingRun drive: Succeeded  pretrain  epoch 2/2")
    with pytest.raises(StoreNotReachable, match='configmaps "lead-store-default" not found; set LEAD_STORE_URL'):
        run.checkpoints()
    data = {
        "url": f"s3://{trained.namespace}", "endpoint": trained.minio.endpoint, "secure": "false",
        "region": "us-east-1", "addressing": "path", "viewSecret": "lead-view-default", "caConfigMap": "",
    }  # fmt: skip
    key = {"access-key": base64.b64encode(ROOT_USER.encode()).decode(),
           "secret-key": base64.b64encode(ROOT_PASSWORD.encode()).decode()}  # fmt: skip
    trained.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "lead-store-default"}, "data": data},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "lead-view-default"}, "data": key},
    )
    assert [(each.stage, each.seed, each.epoch) for each in run.checkpoints()] == [("pretrain", 0, 2)]
    assert [each.name for each in here.list()] == ["drive"]


def test_a_failed_run_raises_its_condition_and_one_that_waits_names_what_for(trained: Bench) -> None:
    here = cluster(trained)
    trained.driver.script.exits["pretrain", 1, 0] = Exit(ExitCode.BAD_CONFIG, "batchsize: unknown key; did you mean")
    stages = [{"name": "pretrain", "epochs": 2}]
    with pytest.raises(RunFailed, match="batchsize: unknown key; did you mean") as caught:
        here.submit(TrainingRun("drive", **RUN, stages=stages)).wait(LONGEST_S)
    assert caught.value.reason == "BadConfig" and caught.value.condition is not None
    waiting = here.submit(TrainingRun("waits", recipe="lead", datasets=[{"cacheRef": {"name": "twon"}}]))
    for status in waiting.changes(LONGEST_S):
        if status.reason == "CacheNotFound":
            break
    with pytest.raises(WaitTimeout, match=r"it is Pending: .*twon.*town") as late:
        waiting.wait(0.5)
    assert late.value.reason == "CacheNotFound"


def test_a_watch_goes_on_through_an_outage_and_sees_suspension_and_the_end(trained: Bench) -> None:
    trained.driver.script.held.add("pretrain")
    run = cluster(trained).submit(TrainingRun("drive", **RUN, stages=[{"name": "pretrain", "epochs": 2}]))
    phases: list[str] = []
    helper = ThreadPoolExecutor(1)

    def away_for_a_while() -> None:
        time.sleep(3.0)  # while the watch finds nobody
        trained.plane.start_apiserver()
        run.suspend()

    for status in run.changes(LONGEST_S):
        phase = status.phase or ""
        if phase == "Running" and phase not in phases:
            trained.plane.kill_apiserver()
            outage = helper.submit(away_for_a_while)
        if phase == "Suspended" and phase not in phases:
            outage.result()
            trained.driver.script.held.clear()
            run.resume()
        phases += [phase] if phase not in phases[-1:] else []
    helper.shutdown()
    assert "Suspended" in phases and phases[-1] == "Succeeded", phases


def test_a_run_that_is_deleted_while_somebody_waits_is_reported(bench: Bench) -> None:
    run = cluster(bench).submit(TrainingRun("drive", **RUN))
    threading.Timer(1.0, run.delete).start()
    with pytest.raises(NotFound, match="drive"):
        run.wait(LONGEST_S)


def test_katibs_job_is_valid_and_its_program_prints_losses_and_deletes_the_run_when_it_is_stopped(
    trained: Bench,
) -> None:
    *rights, experiment = yaml.safe_load_all((EXAMPLES / "katib_sweep.yaml").read_text())
    job = experiment["spec"]["trialTemplate"]["trialSpec"]
    trained.apply(*rights)
    trained.plane.kubectl("-n", trained.namespace, "create", "--dry-run=server", "--validate=strict", "-f", "-",
                          stdin=json.dumps({**job, "metadata": {"name": "lead-lr-x1"}}))  # fmt: skip
    trained.plane.kubectl("label", "namespace", trained.namespace, "pod-security.kubernetes.io/enforce=restricted")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x1"}, "spec": job["spec"]["template"]["spec"]}
    trained.plane.kubectl("-n", trained.namespace, "create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
    kubeconfig = kubeconfig_of(trained, "katib-trials", trained.operator.log.parent / "kubeconfig")
    command = [sys.executable, "-m", "lead_client.examples.katib_trial", "--cache=town", "--lr=0.001", "--epochs=2"]
    environ = {**os.environ, "KUBECONFIG": str(in_namespace(kubeconfig, trained.namespace))}
    done = subprocess.run([*command, "x1"], env=environ, capture_output=True, text=True, timeout=LONGEST_S)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.splitlines()[-1] == "loss=0.1667"
    trained.driver.script.held.add("train")
    with subprocess.Popen([*command, "x2"], env=environ, stdout=subprocess.PIPE) as stopped:
        trained.wait_phase("trun", "x2", "Running")
        stopped.terminate()
        assert stopped.wait(60) == 0
    assert trained.get("trun", "x2") == {} or trained.get("trun", "x2")["metadata"].get("deletionTimestamp")


def in_namespace(kubeconfig: Path, namespace: str) -> Path:
    document = json.loads(kubeconfig.read_text())
    document["contexts"][0]["context"]["namespace"] = namespace
    kubeconfig.write_text(json.dumps(document))
    return kubeconfig
