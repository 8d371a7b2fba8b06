"""The objects the operator makes, written out whole: the smallest case first, then what changes it."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from lead_operator import names
from lead_operator.errors import SpecError
from lead_operator.objects.build_pod import build_cache_pod
from lead_operator.objects.service_and_claims import build_rank_service, build_session_cache_claim
from lead_operator.objects.training_pod import build_training_pod
from lead_operator.resources.body import parse_quantity
from lead_operator.resources.training_run import TrainingRun, parse_training_run
from lead_operator.settings import TAKEN_VARIABLE, PodDisk, Settings
from lead_protocol import environment
from lead_protocol.job import BuildJob, CheckpointPolicy, DatasetSource, TrainJob, parse_job
from lead_testing.makers import (
    CACHE_UID,
    DIGEST,
    PROFILE,
    RUN_UID,
    SETTINGS,
    a_dataset_cache,
    a_run_body,
    a_training_run,
)
from lead_trainer.world import child_environments

OWNER = {
    "apiVersion": "lead.dev/v1alpha1",
    "kind": "TrainingRun",
    "name": "night-drive",
    "uid": RUN_UID,
    "controller": True,
    "blockOwnerDeletion": True,
}
STORE_ENV = [
    {"name": "LEAD_STORAGE_PROFILE", "value": "default"},
    {"name": "LEAD_S3_ENDPOINT", "value": "minio.lead:9000"},
    {"name": "LEAD_S3_SECURE", "value": "false"},
    {"name": "LEAD_S3_REGION", "value": ""},
    {"name": "LEAD_S3_ADDRESSING", "value": "path"},
    {"name": "LEAD_STORE_URL", "value": "s3://lead"},
    {"name": "LEAD_S3_CREDENTIALS", "value": "static"},
    {"name": "HOME", "value": "/tmp"},
    {"name": "PYTHONUNBUFFERED", "value": "1"},
]
POD_SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "fsGroup": 65532,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
COMMON_MOUNTS = [
    {"name": "job", "mountPath": "/etc/lead/job", "readOnly": True},
    {"name": "s3", "mountPath": "/etc/lead/s3", "readOnly": True},
    {"name": "scratch", "mountPath": "/var/run/lead"},
    {"name": "tmp", "mountPath": "/tmp"},
]
COMMON_VOLUMES = [
    {
        "name": "job",
        "downwardAPI": {
            "items": [{"path": "job.json", "fieldRef": {"fieldPath": "metadata.annotations['lead.dev/job']"}}]
        },
    },
    {"name": "s3", "secret": {"secretName": "lead-s3-default", "defaultMode": 0o440}},
    {"name": "scratch", "emptyDir": {"sizeLimit": "50Gi"}},
    {"name": "tmp", "emptyDir": {"sizeLimit": "50Gi"}},
]


def a_training_pod(
    run: TrainingRun, *, rank: int = 1, attempt: int = 3, settings: Settings = SETTINGS, stage: int = -1
) -> dict[str, Any]:
    return build_training_pod(
        run,
        run.instances[stage],
        attempt=attempt,
        rank=rank,
        datasets={name: DatasetSource(name=name, digest=DIGEST) for name in run.datasets},
        profile=PROFILE,
        settings=settings,
    )


def test_the_pod_of_rank_1_of_a_small_run() -> None:
    pod = a_training_pod(a_training_run())
    job = pod["metadata"]["annotations"].pop("lead.dev/job")
    assert json.loads(job)["attempt"] == 3
    assert pod == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "night-drive-train-s0-a3-1",
            "namespace": "team-a",
            "labels": {
                "app.kubernetes.io/name": "lead",
                "app.kubernetes.io/managed-by": "lead-operator",
                "app.kubernetes.io/component": "training",
                "lead.dev/owner-uid": RUN_UID,
                "lead.dev/role": "train",
                "lead.dev/run": "night-drive",
                "lead.dev/stage": "train",
                "lead.dev/seed": "0",
                "lead.dev/attempt": "3",
                "lead.dev/rank": "1",
                "lead.dev/nodes": "2",
            },
            "annotations": {"lead.dev/pulls": f"{SETTINGS.trainer_image} IfNotPresent"},
            "ownerReferences": [OWNER],
        },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "serviceAccountName": "lead-run",
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 120,
            "securityContext": POD_SECURITY,
            "hostname": "night-drive-train-s0-a3-1",
            "subdomain": "night-drive-ranks",
            "containers": [
                {
                    "name": "lead",
                    "image": SETTINGS.trainer_image,
                    "imagePullPolicy": "IfNotPresent",
                    "args": ["pod"],
                    "env": [
                        *STORE_ENV,
                        {"name": "PET_NNODES", "value": "2"},
                        {"name": "PET_NODE_RANK", "value": "1"},
                        {"name": "PET_NPROC_PER_NODE", "value": "1"},
                        {
                            "name": "PET_MASTER_ADDR",
                            "value": "night-drive-train-s0-a3-0.night-drive-ranks.team-a.svc",
                        },
                        {"name": "PET_MASTER_PORT", "value": "29500"},
                        {"name": "OMP_NUM_THREADS", "value": "1"},
                    ],
                    "resources": {
                        "requests": {"cpu": "1", "memory": "4Gi", "ephemeral-storage": "1Gi"},
                        "limits": {"memory": "4Gi", "ephemeral-storage": str((50 + 50 + 1 + 100) * 2**30)},
                    },
                    "securityContext": CONTAINER_SECURITY,
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "volumeMounts": [
                        *COMMON_MOUNTS,
                        {"name": "session-cache", "mountPath": "/var/cache/lead"},
                        {"name": "shm", "mountPath": "/dev/shm"},
                    ],
                }
            ],
            "volumes": [
                *COMMON_VOLUMES,
                {"name": "session-cache", "emptyDir": {"sizeLimit": "100Gi"}},
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "4Gi"}},
            ],
        },
    }


def test_the_job_of_a_small_run() -> None:
    text = a_training_pod(a_training_run(config={"lr": 0.1}, checkpoint={"keepEveryEpochs": 5, "onBest": True}))[
        "metadata"
    ]["annotations"]["lead.dev/job"]
    assert isinstance(parse_job(text), TrainJob)
    assert json.loads(text) == {
        "kind": "train",
        "owner": {"namespace": "team-a", "name": "night-drive", "uid": RUN_UID},
        "stage": "train",
        "seed": 0,
        "attempt": 3,
        "recipe": "lead",
        "preset": "",
        "config": {"lr": 0.1},
        "epochs": 4,
        "nodes": 2,
        "procs_per_node": 1,
        "datasets": [{"name": "towns", "digest": DIGEST, "manifest_sha256": ""}],
        "checkpoint": CheckpointPolicy(
            every_epochs=1, every_steps=0, keep_last=3, keep_best=1, keep_every_epochs=5, on_best=True, resume="Auto"
        ).model_dump(),
        "evaluates": False,
        "init_from": None,
        "resume_from": None,
        "session_cache_bytes": int(0.95 * 100 * 2**30),
        "logging": {"tensorboard": True, "wandb_project": "", "wandb_mode": "disabled"},
        "grace_period_s": 120,
        "all_stages": None,
    }


def test_the_first_stage_knows_the_others_so_that_it_finds_what_they_miss() -> None:
    stages = [{"name": "train", "epochs": 4}, {"name": "tune", "epochs": 1, "config": {"lr": 0.2}}]
    run = a_training_run(config={"batch_size": 4}, stages=stages)
    jobs = [parse_job(a_training_pod(run, stage=stage)["metadata"]["annotations"]["lead.dev/job"]) for stage in (0, 1)]
    later = [[(job.stage, job.config) for job in each.later_jobs] for each in jobs if isinstance(each, TrainJob)]
    assert later == [[("tune", {"batch_size": 4, "lr": 0.2})], []]


def test_stages_whose_keys_are_too_many_for_one_pod_are_checked_when_each_starts() -> None:
    stages = [{"name": f"s{n}", "epochs": 1, "config": {"towns": ["x" * 1000] * 60}} for n in range(3)]
    run = a_training_run(config={"batch_size": 4}, stages=stages)
    job = parse_job(a_training_pod(run)["metadata"]["annotations"]["lead.dev/job"])
    assert isinstance(job, TrainJob) and job.all_stages is None and len(job.config["towns"]) == 60


def test_the_service_by_which_ranks_find_each_other() -> None:
    assert build_rank_service(a_training_run()) == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "night-drive-ranks",
            "namespace": "team-a",
            "labels": {
                "app.kubernetes.io/name": "lead",
                "app.kubernetes.io/managed-by": "lead-operator",
                "lead.dev/owner-uid": RUN_UID,
                "lead.dev/run": "night-drive",
            },
            "ownerReferences": [OWNER],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"lead.dev/owner-uid": RUN_UID, "lead.dev/role": "train"},
            "ports": [{"name": "rendezvous", "protocol": "TCP", "port": 29500, "targetPort": 29500}],
        },
    }


def test_one_share_of_a_cache_build_from_a_volume() -> None:
    cache = a_dataset_cache(source={"claimName": "raw", "path": "towns"}, collections=["full"])
    pod = build_cache_pod(cache, attempt=2, index=1, profile=PROFILE, settings=SETTINGS)
    job = parse_job(pod["metadata"]["annotations"]["lead.dev/job"])
    assert isinstance(job, BuildJob)
    assert (job.index, job.parallelism, job.attempt, job.generation) == (1, 2, 2, 1)
    assert job.source.model_dump() == {"kind": "folder", "path": "/var/lib/lead/source/towns"}
    assert job.collections == ["full"]
    assert pod["metadata"]["name"] == "towns-build-g1-a2-1"
    assert pod["metadata"]["ownerReferences"][0]["uid"] == CACHE_UID
    assert pod["metadata"]["labels"]["lead.dev/index"] == "1"
    assert pod["spec"]["volumes"][-1] == {
        "name": "source",
        "persistentVolumeClaim": {"claimName": "raw", "readOnly": True},
    }
    assert pod["spec"]["containers"][0]["volumeMounts"][-1] == {
        "name": "source",
        "mountPath": "/var/lib/lead/source",
        "readOnly": True,
    }


def test_a_persistent_session_cache_is_one_claim_a_rank() -> None:
    run = a_training_run(
        sessionCache={"medium": "PersistentVolume", "sizeLimit": "10Gi", "storageClassName": "local-ssd"}
    )
    claim = build_session_cache_claim(run, 1)
    assert claim["metadata"]["name"] == "night-drive-cache-1"
    assert claim["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "10Gi"}},
        "storageClassName": "local-ssd",
    }
    volumes = a_training_pod(run)["spec"]["volumes"]
    assert {"name": "session-cache", "persistentVolumeClaim": {"claimName": "night-drive-cache-1"}} in volumes


def test_runs_that_give_one_word_share_claims_that_no_run_owns() -> None:
    cache = {"medium": "PersistentVolume", "sharedClaimName": "towns"}
    night, day = a_run_body(sessionCache=cache), a_run_body(sessionCache=cache)
    day["metadata"] |= {"name": "day-drive", "uid": "another"}
    runs = [parse_training_run(body) for body in (night, day)]
    first, second = (build_session_cache_claim(run, 1) for run in runs)
    assert first == second
    assert first["metadata"]["name"] == "towns-shared-1"
    assert first["metadata"]["labels"]["lead.dev/shared-claim"] == "towns"
    assert "ownerReferences" not in first["metadata"] and names.Label.OWNER_UID not in first["metadata"]["labels"]
    volumes = a_training_pod(runs[1])["spec"]["volumes"]
    assert {"name": "session-cache", "persistentVolumeClaim": {"claimName": "towns-shared-1"}} in volumes


def test_no_run_has_a_claim_of_its_own_that_reads_like_a_shared_one() -> None:
    words = ("exp", "a" * 40)
    shared = {names.shared_cache_claim_name(word, rank) for word in words for rank in (0, 1)}
    runs = [f"{word}{end}" for word in words for end in ("", "-shared", "-shared-0")]
    assert not shared & {names.session_cache_claim_name(run, rank) for run in runs for rank in (0, 1)}


def test_gpus_decide_how_many_processes_a_pod_runs() -> None:
    run = a_training_run(resources={"requests": {"cpu": "32"}, "limits": {"nvidia.com/gpu": 4}})
    env = {e["name"]: e["value"] for e in a_training_pod(run)["spec"]["containers"][0]["env"]}
    assert (env["PET_NPROC_PER_NODE"], env["OMP_NUM_THREADS"]) == ("4", "8")


@pytest.mark.parametrize(
    ("cpu", "threads"), [("150m", 1), (2, 2), ("3.5", 3), ("1k", 1000), ("0.002M", 2000), ("4Ki", 4096)]
)
def test_cores_may_be_written_with_any_unit_that_the_schema_takes(cpu: str | int, threads: int) -> None:
    run = a_training_run(resources={"requests": {"cpu": cpu}})
    env = {e["name"]: e["value"] for e in a_training_pod(run)["spec"]["containers"][0]["env"]}
    assert env["OMP_NUM_THREADS"] == str(threads)


@pytest.mark.parametrize(
    ("cache", "limits", "size_bytes"),
    [
        ({"sizeLimit": "10Gi"}, {}, int(0.95 * 10 * 2**30)),
        ({"sizeLimit": "100Gi"}, {"ephemeral-storage": "20Gi"}, 15 * 2**30),
        ({"sizeLimit": "10Gi"}, {"ephemeral-storage": "20Gi"}, int(0.95 * 10 * 2**30)),
        ({"sizeLimit": "10G", "medium": "PersistentVolume"}, {"ephemeral-storage": "1Gi"}, int(0.95 * 10**10)),
        ({"sizeLimit": "0.1"}, {}, 1),
    ],
)
def test_a_cache_stops_filling_before_its_pod_would_be_evicted(
    cache: dict[str, Any], limits: dict[str, str], size_bytes: int
) -> None:
    pod = a_training_pod(a_training_run(sessionCache=cache, resources={"limits": limits}))
    assert json.loads(pod["metadata"]["annotations"]["lead.dev/job"])["session_cache_bytes"] == size_bytes


def test_queue_and_scheduler_are_passed_through() -> None:
    names_given = {"schedulerName": "volcano", "priorityClassName": "high", "queueName": "team-a"}
    pod = a_training_pod(a_training_run(scheduling=names_given))
    assert (pod["spec"]["schedulerName"], pod["spec"]["priorityClassName"]) == ("volcano", "high")
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] == "night-drive-train-s0-a3"
    assert pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] == "2"
    assert pod["metadata"]["annotations"]["kueue.x-k8s.io/retriable-in-group"] == "false"


def test_overrides_reach_the_pod_but_never_our_own_labels() -> None:
    given = {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "labels": {"team": "a", "lead.dev/rank": "7"},
        "annotations": {"note": "$(SECRET)"},
    }
    pod = a_training_pod(a_training_run(podOverrides=given))
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert pod["spec"]["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert (pod["metadata"]["labels"]["team"], pod["metadata"]["labels"]["lead.dev/rank"]) == ("a", "1")


def test_variables_of_who_installed_the_chart_reach_every_pod() -> None:
    settings = replace(SETTINGS, pod_environment={"NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0"})
    building = build_cache_pod(a_dataset_cache(), attempt=2, index=1, profile=PROFILE, settings=settings)
    for pod in (a_training_pod(a_training_run(), settings=settings), building):
        assert pod["spec"]["containers"][0]["env"][-2:] == [
            {"name": "GLOO_SOCKET_IFNAME", "value": "eth0"},
            {"name": "NCCL_SOCKET_IFNAME", "value": "eth0"},
        ]


def test_no_variable_that_operator_or_trainer_sets_is_anybody_elses() -> None:
    run = a_training_run(logging={"wandb": {"project": "night", "secretName": "lead-wandb-team"}})
    building = build_cache_pod(a_dataset_cache(), attempt=2, index=1, profile=PROFILE, settings=SETTINGS)
    set_by_us = {e["name"] for pod in (a_training_pod(run), building) for e in pod["spec"]["containers"][0]["env"]}
    set_by_us |= set(child_environments({}, 2)[0])
    assert [name for name in sorted(set_by_us) if not re.fullmatch(TAKEN_VARIABLE, name)] == []


def test_a_wandb_key_comes_from_the_named_secret() -> None:
    run = a_training_run(logging={"wandb": {"project": "night", "secretName": "lead-wandb-team"}})
    env = a_training_pod(run)["spec"]["containers"][0]["env"]
    reference = {"name": "lead-wandb-team", "key": "api-key"}
    assert env[-1] == {"name": "WANDB_API_KEY", "valueFrom": {"secretKeyRef": reference}}


@pytest.mark.parametrize("text", ["$(AWS_SECRET_ACCESS_KEY)", "; rm -rf /", "--flag", "a\nb", "../../x"])
def test_nothing_a_user_typed_becomes_argv_or_environment(text: str) -> None:
    run = a_training_run(config={"name": text, text: 1})
    pod = a_training_pod(run)
    container = pod["spec"]["containers"][0]
    assert container["args"] == ["pod"] and "command" not in container
    assert text not in json.dumps(container)
    assert json.loads(pod["metadata"]["annotations"][environment.JOB_ANNOTATION])["config"]["name"] == text


def test_a_stages_config_wins_key_by_key() -> None:
    stages = [{"name": "train", "epochs": 1, "config": {"lr": 2, "compat": {"lagging_lr": False}}}]
    run = a_training_run(stages=stages, config={"lr": 1, "seed": 7, "compat": {"lagging_lr": True, "sync": True}})
    job = json.loads(a_training_pod(run)["metadata"]["annotations"][environment.JOB_ANNOTATION])
    assert job["config"] == {"lr": 2, "seed": 7, "compat": {"lagging_lr": False, "sync": True}}


def test_a_config_too_large_for_a_pod_is_the_users_mistake() -> None:
    with pytest.raises(SpecError, match="move large values"):
        a_training_pod(a_training_run(config={"table": "x" * 300_000}))


@pytest.mark.parametrize("owner", ["a", "x" * 253, "dotted.name." * 12 + "x", "7-towns", "x" * 40])
def test_every_child_name_is_one_dns_label(owner: str) -> None:
    made = [
        names.training_pod_name(owner, "s" * 20, 999999999, 1000, 255),
        names.build_pod_name(owner, 100, 1000, 63),
        names.rank_service_name(owner),
        names.session_cache_claim_name(owner, 255),
        names.label_value(owner),
    ]
    for name in made[:-1]:
        assert len(name) <= 63 and name[0].isalpha()
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") and "--" not in name
    assert len(made[-1]) <= 63
    assert len(set(made)) == len(made)


def test_long_owners_with_one_beginning_keep_their_children_apart() -> None:
    first, second = ("x" * 200 + end for end in "ab")
    assert names.rank_service_name(first) != names.rank_service_name(second)


def test_no_two_runs_share_a_pods_name_whatever_dashes_they_have() -> None:
    """Names without a dash in the stage stay as they are: live pods are not to be renamed."""
    assert names.training_pod_name("exp-big", "train", 0, 1, 0) == "exp-big-train-s0-a1-0"
    assert names.training_pod_name("exp", "big-train", 0, 1, 0) != "exp-big-train-s0-a1-0"
    assert names.pod_group_name("exp", "big-train", 0, 1) != names.pod_group_name("exp-big", "train", 0, 1)
    made = {
        names.training_pod_name(run, stage, 0, 1, 0) for run, stage in (("a", "b-c-d"), ("a-b", "c-d"), ("a-b-c", "d"))
    }
    assert len(made) == 3


@pytest.mark.parametrize(
    ("asked", "scratch", "tmp", "request_", "limit"),
    [
        ({}, "8Gi", "2Gi", "1Gi", (8 + 2 + 1 + 1) * 2**30),
        ({"limits": {"ephemeral-storage": "40Gi"}}, "40Gi", "40Gi", "1Gi", 40 * 2**30),
        ({"limits": {"ephemeral-storage": "512Mi"}}, "512Mi", "512Mi", str(512 * 2**20), 512 * 2**20),
        ({"requests": {"ephemeral-storage": "90Gi"}}, "8Gi", "2Gi", "90Gi", 90 * 2**30),
    ],
    ids=["by default", "as the spec says", "less than the default request", "more asked for than the volumes hold"],
)
def test_what_a_pod_writes_to_its_nodes_disk_is_bounded(
    asked: dict[str, Any], scratch: str, tmp: str, request_: str, limit: int
) -> None:
    """A run cannot fill the disk of its node.

    Audit: minor-emptydir
    """
    settings = replace(SETTINGS, pod_disk=PodDisk(scratch="8Gi", tmp="2Gi", request="1Gi"))
    run = a_training_run(sessionCache={"sizeLimit": "1Gi"}, resources=asked)
    pod = a_training_pod(run, settings=settings)
    volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
    assert volumes["scratch"]["emptyDir"] == {"sizeLimit": scratch}
    assert volumes["tmp"]["emptyDir"] == {"sizeLimit": tmp}
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["requests"]["ephemeral-storage"] == request_
    assert parse_quantity(container["resources"]["limits"]["ephemeral-storage"]) == limit
    on_a_volume = a_training_run(sessionCache={"medium": "PersistentVolume", "sizeLimit": "900Gi"})
    (container,) = a_training_pod(on_a_volume, settings=settings)["spec"]["containers"]
    assert parse_quantity(container["resources"]["limits"]["ephemeral-storage"]) == (8 + 2 + 1) * 2**30
