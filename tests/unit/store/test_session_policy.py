"""A job's session policy: exactly its prefixes, within the 2,048 characters that an STS takes."""

import json
from typing import Any

import pytest

from lead_protocol.job import BuildJob, DatasetSource, FolderSource, OwnerIdentity, StoreSource, TrainJob
from lead_protocol.job_access import job_access, weights_access
from lead_protocol.store.session_policy import MAX_CHARS, Access, PolicyNotPossible, session_policy

UID = "0b0a3c1e-6f0c-4d6e-9d0a-6f2f4f1f2b3c"
OWNER = OwnerIdentity(namespace="team-a", name="drive", uid=UID)


def a_train_job(*digests: str, namespace: str = "team-a") -> TrainJob:
    return TrainJob(
        owner=OWNER.model_copy(update={"namespace": namespace}), stage="train", seed=0, attempt=1, recipe="lead",
        epochs=1, nodes=1, procs_per_node=1,
        datasets=[DatasetSource(name=f"d{number}", digest=digest) for number, digest in enumerate(digests)],
    )  # fmt: skip


def a_build_job(source: StoreSource | FolderSource) -> BuildJob:
    return BuildJob(
        owner=OWNER, generation=1, attempt=1, index=0, parallelism=1, recipe="lead", source=source, collections=["c"]
    )


def allowed(policy: str) -> dict[str, list[str]]:
    """Returns prefixes by action; of lists those that a condition names."""
    found: dict[str, list[str]] = {}
    document: dict[str, Any] = json.loads(policy)
    assert document["Version"] == "2012-10-17"
    for statement in document["Statement"]:
        assert statement["Effect"] == "Allow"
        for action in statement["Action"]:
            condition = statement.get("Condition", {}).get("StringLike", {}).get("s3:prefix")
            found[action] = condition or statement["Resource"]
    return found


def test_a_run_reads_its_caches_and_its_namespaces_runs_and_writes_its_own_folder() -> None:
    """Audit: S13"""
    may = allowed(session_policy(job_access(a_train_job("d" * 64)), "lead", ""))
    reads = [f"caches/team-a/{'d' * 64}/*", "runs/team-a/*", f"control/team-a/{UID}/*", "weights/*"]
    assert may["s3:ListBucket"] == reads
    assert may["s3:GetObject"] == [f"arn:aws:s3:::lead/{prefix}" for prefix in reads]
    assert may["s3:PutObject"] == [f"arn:aws:s3:::lead/runs/team-a/{UID}/*"]
    assert set(may) == {
        "s3:ListBucket", "s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"
    }  # fmt: skip


def test_a_build_reads_one_source_and_writes_its_own_folder() -> None:
    """Audit: S13"""
    may = allowed(session_policy(job_access(a_build_job(StoreSource(prefix="datasets/town"))), "lead", "team/x"))
    own = f"team/x/builds/team-a/{UID}/*"
    assert may["s3:ListBucket"] == ["team/x/datasets/town/*", own, "team/x/caches/team-a/*"]
    assert may["s3:PutObject"] == [f"arn:aws:s3:::lead/{own}"]


def test_a_build_from_a_volume_reads_no_raw_data_in_the_bucket() -> None:
    may = allowed(session_policy(job_access(a_build_job(FolderSource(path="/var/lib/lead/source"))), "lead", ""))
    assert may["s3:ListBucket"] == [f"builds/team-a/{UID}/*", "caches/team-a/*"]


def test_reading_weights_takes_no_other_right() -> None:
    may = allowed(session_policy(weights_access(), "lead", ""))
    assert set(may) == {"s3:ListBucket", "s3:GetObject"}
    assert may["s3:ListBucket"] == ["weights/*"]


def test_so_many_datasets_that_they_do_not_fit_are_named_by_their_namespace() -> None:
    digests = [f"{number:064x}" for number in range(64)]
    policy = session_policy(job_access(a_train_job(*digests)), "lead", "")
    assert len(policy) <= MAX_CHARS
    assert "caches/team-a/*" in allowed(policy)["s3:ListBucket"]
    few = session_policy(job_access(a_train_job(*digests[:4])), "lead", "")
    assert f"caches/team-a/{digests[3]}/*" in allowed(few)["s3:ListBucket"]


def test_a_long_prefix_still_fits() -> None:
    policy = session_policy(job_access(a_train_job("d" * 64, namespace="n" * 63)), "b" * 63, "p" * 60)
    assert len(policy) <= MAX_CHARS


def test_a_prefix_that_is_too_long_or_would_be_expanded_is_named() -> None:
    with pytest.raises(PolicyNotPossible, match=f"expected at most {MAX_CHARS}; shorten the storage profile's prefix"):
        session_policy(job_access(a_train_job("d" * 64)), "lead", "p" * 900)
    for prefix in ("datasets/*/", "datasets/tow?/", "datasets/${jwt:sub}/"):
        with pytest.raises(PolicyNotPossible, match="which a policy expands"):
            session_policy(Access("build", reads=(prefix,), writes=()), "lead", "")
