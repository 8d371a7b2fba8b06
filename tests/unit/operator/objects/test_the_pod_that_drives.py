"""The closed-loop pod: three containers, of which the user's own sees weights and routes and nothing else."""

from dataclasses import replace
from typing import Any

import pytest

from lead_operator.errors import SpecError
from lead_operator.objects.closed_loop_pod import Target, build_closed_loop_pod
from lead_operator.settings import StorageProfile
from lead_protocol.job import ClosedLoopJob, parse_job
from lead_protocol.job_access import job_access
from lead_testing.makers import PROFILE, RUN_UID, SETTINGS, a_training_run

CHECKPOINT = f"runs/team-a/{RUN_UID}/train-s3/checkpoints/{120:012d}/0002-abc/"
TARGET = Target("train", 3, 12, 120, f"{PROFILE.url}/{CHECKPOINT}", "word")
SIMULATOR: dict[str, Any] = {
    "image": "registry.example/carla:1",
    "command": ["drive", "--now"],
    "routes": {"prefix": "weights/team-a/routes"},
    "resources": {"requests": {"cpu": "4"}, "limits": {"nvidia.com/gpu": 1}},
    "timeoutSeconds": 900,
}
BY_TOKEN = replace(PROFILE, credentials="webIdentity", role_arns={"*": {"run": "arn:run", "build": "arn:build"}})


def a_pod(profile: StorageProfile = PROFILE, target: Target = TARGET, **spec: Any) -> dict[str, Any]:
    run = a_training_run(closedLoop=SIMULATOR, **spec)
    assert run.closed_loop is not None
    return build_closed_loop_pod(run, run.closed_loop, target, attempt=7, profile=profile, settings=SETTINGS)


def containers(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in (*pod["spec"]["initContainers"], *pod["spec"]["containers"])}


def mounts(container: dict[str, Any]) -> dict[str, bool]:
    """Returns whether each volume is mounted read-only."""
    return {mount["name"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}


def values(container: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def test_the_container_of_the_users_program_written_out() -> None:
    simulate = containers(a_pod())["simulate"]
    assert {key: simulate[key] for key in ("image", "command", "securityContext", "imagePullPolicy")} == {
        "image": "registry.example/carla:1",
        "command": ["drive", "--now"],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "imagePullPolicy": "IfNotPresent",
    }
    assert simulate["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert values(simulate) == {
        "HOME": "/tmp",
        "PYTHONUNBUFFERED": "1",
        "LEAD_CLOSED_LOOP_CHECKPOINT": "/var/run/lead-bundle/checkpoint",
        "LEAD_CLOSED_LOOP_RESULTS": "/var/run/lead-results",
        "LEAD_CLOSED_LOOP_ROUTES": "/var/run/lead-bundle/routes",
        "LEAD_CLOSED_LOOP_SEED": "3",
        "LEAD_CLOSED_LOOP_EPOCH": "12",
        "LEAD_CLOSED_LOOP_ATTEMPT": "7",
    }


@pytest.mark.parametrize("profile", [PROFILE, BY_TOKEN], ids=["static", "webIdentity"])
def test_the_users_program_gets_no_credentials_and_shares_no_home_with_them(
    profile: StorageProfile,
) -> None:
    pod = a_pod(profile)
    found = containers(pod)
    assert mounts(found["simulate"]) == {"bundle": True, "results": False, "simulate-tmp": False, "shm": False}
    assert mounts(found["lead"])["results"] is True and "bundle" not in mounts(found["lead"])
    writable = {name for name, read_only in mounts(found["simulate"]).items() if not read_only}
    for name in ("fetch", "lead"):
        assert not writable & {volume for volume, read_only in mounts(found[name]).items() if not read_only}
        assert {"s3", "store-token"} & set(mounts(found[name]))
    assert not {key for key in values(found["simulate"]) if key.startswith(("LEAD_S3", "LEAD_ST", "AWS"))}
    assert pod["spec"]["automountServiceAccountToken"] is False and "shareProcessNamespace" not in pod["spec"]
    assert pod["spec"]["securityContext"]["runAsNonRoot"] and pod["spec"]["serviceAccountName"] == "lead-run"


def test_the_pod_ends_by_itself_and_a_queue_admits_it_alone() -> None:
    pod = a_pod(scheduling={"queueName": "gpus", "priorityClassName": "low"}, podOverrides={"labels": {"gang": "a"}})
    assert pod["spec"]["activeDeadlineSeconds"] == 900 and pod["spec"]["priorityClassName"] == "low"
    labels = pod["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "gpus"
    assert not {"gang", "kueue.x-k8s.io/pod-group-name"} & set(labels)
    assert (labels["lead.dev/role"], labels["lead.dev/epoch"]) == ("closed-loop", "12")


def test_its_store_rights_are_the_runs_own_checkpoints_and_the_routes() -> None:
    job = parse_job(a_pod()["metadata"]["annotations"]["lead.dev/job"])
    assert isinstance(job, ClosedLoopJob)
    assert (job.checkpoint_prefix, job.epoch, job.step, job.request) == (CHECKPOINT, 12, 120, "word")
    access = job_access(job)
    results = f"runs/team-a/{RUN_UID}/closed_loop/train-s3/"
    assert access.reads == (f"runs/team-a/{RUN_UID}/train-s3/", results, "weights/team-a/routes/")
    assert access.writes == (results,)


def test_a_checkpoint_of_another_namespace_is_refused() -> None:
    elsewhere = replace(TARGET, uri=TARGET.uri.replace("team-a", "team-b"))
    with pytest.raises(SpecError, match="team-b"):
        a_pod(target=elsewhere)
