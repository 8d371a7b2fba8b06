"""A build pod and a training pod as processes, each with the token, files and variables that a pod has.

Their store is a real MinIO with the roles that the chart installs. What their credentials may not do is tried with the
same credentials.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lead_operator.settings import StorageProfile
from lead_operator.storage_init import Account, EmbeddedStore, ProfileAccounts, init_storage
from lead_operator.store_policies import ROLE_POLICIES
from lead_protocol.cache_publication import publish_staged
from lead_protocol.job import BuildJob, DatasetSource, OwnerIdentity, StoreSource, TrainJob
from lead_protocol.job_access import job_access
from lead_protocol.object_keys import CacheKeys, InstanceKeys
from lead_protocol.progress_record import BuildRecord
from lead_protocol.store.object_store import StoreDenied
from lead_protocol.store.open_store import open_store
from lead_protocol.store.s3 import S3Store
from lead_testing.minio_server import ROOT_PASSWORD, ROOT_USER, MinioServer, minio_program
from lead_testing.ports import free_port
from lead_testing.token_issuer import ROLE_ARN, TokenIssuer

BUCKET = "driving"
TEAMS = ("team-a", "team-b")
CACHE_UID, RUN_UID = "c1111111-1111-4111-8111-111111111111", "a1111111-1111-4111-8111-111111111111"
OTHER_UID = "b2222222-2222-4222-8222-222222222222"
OTHERS = (
    "datasets/team-b/town/k", "weights/team-b/k", f"caches/team-b/{'e' * 64}/MANIFEST.json",
    f"builds/team-b/{OTHER_UID}/k", f"runs/team-b/{OTHER_UID}/k", f"control/team-b/{OTHER_UID}/ended.json",
)  # fmt: skip
OWN = (
    "datasets/team-a/city/k", f"caches/team-a/{'e' * 64}/MANIFEST.json", f"builds/team-a/{OTHER_UID}/k",
    f"runs/team-a/{OTHER_UID}/k", f"control/team-a/{OTHER_UID}/ended.json", f"control/team-a/{RUN_UID}/ended.json",
)  # fmt: skip


@dataclass
class Bucket:
    """A store with raw data of team-a, and with one object of everybody else's in every folder."""

    minio: MinioServer
    issuer: TokenIssuer
    operator: S3Store
    folder: Path

    def environment(self, account: str) -> dict[str, str]:
        """Returns what a pod of team-a finds, with a token of its account in a file of its own."""
        token = self.folder / account / "token"
        self.issuer.write_token(token, "team-a", account)
        return {
            "LEAD_STORE_URL": f"s3://{BUCKET}", "LEAD_S3_ENDPOINT": self.minio.endpoint, "LEAD_S3_SECURE": "false",
            "LEAD_S3_CREDENTIALS": "webIdentity", "LEAD_STS_ROLE_ARN": ROLE_ARN, "LEAD_STORAGE_PROFILE": "default",
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(token),
        }  # fmt: skip

    def run_pod(self, job: TrainJob | BuildJob, account: str) -> Path:
        """Runs `lead pod` to its end, which must be success; returns the folder of its files."""
        folder = self.folder / job.kind
        folder.mkdir()
        (folder / "job.json").write_text(job.model_dump_json())
        command = [sys.executable, "-m", "lead_trainer", "pod", "--job", folder / "job.json",
                   "--scratch", folder / "scratch", "--session-cache", folder / "cache",
                   "--termination-log", folder / "termination-log"]  # fmt: skip
        rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
        environ = {"PATH": os.environ["PATH"], "HOME": str(folder), **rendezvous, **self.environment(account)}
        environ |= {f"PET_{name}": value for name, value in rendezvous.items() if name.startswith("MASTER")}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=500, check=False)
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
        return folder

    def credentials_of(self, job: TrainJob | BuildJob, account: str) -> S3Store:
        """Opens the store as the pod's processes do."""
        store = open_store(self.environment(account), credentials_dir=self.folder / "none", access=job_access(job))
        assert isinstance(store, S3Store)
        return store


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    folder = tmp_path_factory.mktemp("pods")
    with (
        TokenIssuer() as issuer,
        MinioServer(minio_program(), folder / "minio", issuer.minio_environment(*ROLE_POLICIES)) as minio,
    ):
        profile = StorageProfile("default", minio.endpoint, BUCKET, secure=False)
        people = {team: Account(f"data-{team}", f"secret-of-{team}") for team in TEAMS}
        accounts = ProfileAccounts(profile, Account("operator", "operator-secret"), people)
        init_storage(EmbeddedStore(Account(ROOT_USER, ROOT_PASSWORD), (accounts,)))
        root = S3Store(minio.target(BUCKET))
        for key in (*OTHERS, *OWN):
            root.put(key, b"theirs")
        environ = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "LEAD_STORE_URL": f"s3://{BUCKET}",
            "LEAD_S3_ENDPOINT": minio.endpoint, "LEAD_S3_SECURE": "false",
            "AWS_ACCESS_KEY_ID": "data-team-a", "AWS_SECRET_ACCESS_KEY": "secret-of-team-a",
        }  # fmt: skip
        upload = [sys.executable, "-m", "lead_trainer", "example-data", "store:datasets/team-a/town",
                  "--routes", "2", "--frames", "24"]  # fmt: skip
        subprocess.run(upload, env=environ, check=True, capture_output=True, timeout=300)
        yield Bucket(minio, issuer, root, folder)


BUILD = BuildJob(
    owner=OwnerIdentity(namespace="team-a", name="towns", uid=CACHE_UID), generation=1, attempt=1, index=0,
    parallelism=1, recipe="lead", source=StoreSource(prefix="datasets/team-a/town"), collections=["full_pretrain"],
    config={"preset": "demo"},
)  # fmt: skip


def a_train_job(digest: str) -> TrainJob:
    return TrainJob(
        owner=OwnerIdentity(namespace="team-a", name="drive", uid=RUN_UID), stage="train", seed=0, attempt=1,
        recipe="lead", preset="demo", epochs=1, nodes=1, procs_per_node=1,
        datasets=[DatasetSource(name="towns", digest=digest)], config={"batch_size": 4},
    )  # fmt: skip


def refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except StoreDenied as error:
        assert "AccessDenied" in str(error) and "webIdentity" in str(error)
        return True
    return False


def test_a_build_and_a_run_end_with_credentials_that_reach_nothing_else(bucket: Bucket) -> None:
    """Audit: B3
    Audit: S13"""
    ended = bucket.run_pod(BUILD, "lead-build")
    record = BuildRecord.model_validate_json((ended / "termination-log").read_bytes())
    assert record.phase == "Done"
    digest = record.digest
    assert bucket.operator.head(CacheKeys("team-a", digest).manifest) is None  # a build pod publishes nothing
    publish_staged(bucket.operator, BUILD.keys, digest)

    job = a_train_job(digest)
    bucket.run_pod(job, "lead-run")
    keys = InstanceKeys("team-a", RUN_UID, "train", 0)
    assert [info.key for info in bucket.operator.list(keys.manifests_prefix)]

    build, run = bucket.credentials_of(BUILD, "lead-build"), bucket.credentials_of(job, "lead-run")
    for store in (build, run):
        for key in OTHERS:
            assert refused(lambda key=key, store=store: store.get(key, max_bytes=100)), key  # type: ignore[misc]
        for key in (*OTHERS, *OWN):
            assert refused(lambda key=key, store=store: store.put(key, b"ours")), key  # type: ignore[misc]
            assert refused(lambda key=key, store=store: store.delete(key)), key  # type: ignore[misc]
            assert bucket.operator.get(key, max_bytes=100) == b"theirs"
    manifest, raw = CacheKeys("team-a", digest).manifest, next(bucket.operator.list("datasets/team-a/town/")).key
    assert refused(lambda: build.put(raw, b"other")) and refused(lambda: run.put(raw, b"other"))
    assert refused(lambda: build.put(manifest, b"other")) and refused(lambda: run.put(manifest, b"other"))
    assert refused(lambda: run.get(raw, max_bytes=10**6))
    checkpoint = next(bucket.operator.list(keys.prefix)).key
    assert refused(lambda: build.get(checkpoint, max_bytes=10**6)) and refused(lambda: run.delete(checkpoint))
