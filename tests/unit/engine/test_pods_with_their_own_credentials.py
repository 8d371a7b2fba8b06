"""A build pod and a training pod as processes, each with the token, files and variables that a pod has.

Their store is a real MinIO with the roles that the chart installs. What their credentials may not do is tried with the
same credentials.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from lead_operator.cli.storage_init import Account, EmbeddedStore, ProfileAccounts, init_storage
from lead_operator.cli.store_policies import ROLE_POLICIES
from lead_operator.settings import StorageProfile
from lead_protocol.cache_publication import publish_staged
from lead_protocol.job import BuildJob, DatasetSource, OwnerIdentity, StoreSource, TrainJob
from lead_protocol.job_access import job_access
from lead_protocol.object_keys import CacheKeys, InstanceKeys
from lead_protocol.progress_record import BuildRecord
from lead_protocol.store.object_store import StoreDenied
from lead_protocol.store.open_store import open_store
from lead_protocol.store.s3 import S3Store
from lead_testing.figures import stay
from lead_testing.minio_server import ROOT_PASSWORD, ROOT_USER, MinioServer, minio_program
from lead_testing.operator_process import wait_for
from lead_testing.ports import free_port
from lead_testing.sts_relay import StsRelay
from lead_testing.token_issuer import ROLE_ARN, TokenIssuer

BUCKET = "driving"
TEAMS = ("team-a", "team-b")
CACHE_UID, RUN_UID = "c1111111-1111-4111-8111-111111111111", "a1111111-1111-4111-8111-111111111111"
OTHER_UID = "b2222222-2222-4222-8222-222222222222"
AWAY_UID = "a3333333-3333-4333-8333-333333333333"
LIFE_S, LIVES = 5.0, 4  # of credentials; how many of them the STS is away
EPOCHS = 6  # so many that they do not all end before the credentials do
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
        folder = self.folder / job.owner.uid
        with self.started_pod(job, account) as pod:
            assert pod.wait(timeout=500) == 0, (folder / "log").read_text()[-9000:]
        return folder

    @contextmanager
    def started_pod(self, job: TrainJob | BuildJob, account: str, **further: str) -> Iterator[subprocess.Popen[bytes]]:
        """Starts `lead pod`, with further variables; what it prints is in the file `log` of its folder."""
        folder = self.folder / job.owner.uid
        folder.mkdir()
        (folder / "job.json").write_text(job.model_dump_json())
        command = [sys.executable, "-m", "lead_trainer", "pod", "--job", str(folder / "job.json"),
                   "--scratch", str(folder / "scratch"), "--session-cache", str(folder / "cache"),
                   "--termination-log", str(folder / "termination-log")]  # fmt: skip
        rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            **rendezvous,
            **self.environment(account),
            **further,
        }
        environ |= {f"PET_{name}": value for name, value in rendezvous.items() if name.startswith("MASTER")}
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, env=environ, stdout=log, stderr=log)
            try:
                yield process
            finally:
                process.kill()
                process.wait()

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
                  "--routes", "2", "--frames", "12"]  # fmt: skip
        subprocess.run(upload, env=environ, check=True, capture_output=True, timeout=300)
        yield Bucket(minio, issuer, root, folder)


BUILD = BuildJob(
    owner=OwnerIdentity(namespace="team-a", name="towns", uid=CACHE_UID), generation=1, attempt=1, index=0,
    parallelism=1, recipe="lead", source=StoreSource(prefix="datasets/team-a/town"), collections=["full_pretrain"],
    config={"preset": "demo"},
)  # fmt: skip


def a_train_job(digest: str, uid: str = RUN_UID, epochs: int = 1) -> TrainJob:
    return TrainJob(
        owner=OwnerIdentity(namespace="team-a", name="drive", uid=uid), stage="train", seed=0, attempt=1,
        recipe="lead", preset="demo", epochs=epochs, nodes=1, procs_per_node=1,
        datasets=[DatasetSource(name="towns", digest=digest)], config={"batch_size": 4},
    )  # fmt: skip


def refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except StoreDenied as error:
        assert "AccessDenied" in str(error) and "webIdentity" in str(error)
        return True
    return False


@pytest.fixture(scope="module")
def digest(bucket: Bucket) -> str:
    """The digest of a published cache that a build pod has made with its own credentials."""
    ended = bucket.run_pod(BUILD, "lead-build")
    record = BuildRecord.model_validate_json((ended / "termination-log").read_bytes())
    assert record.phase == "Done"
    assert bucket.operator.head(CacheKeys("team-a", record.digest).manifest) is None  # a build pod publishes nothing
    publish_staged(bucket.operator, BUILD.keys, record.digest)
    return record.digest


def committed(bucket: Bucket, keys: InstanceKeys) -> int:
    """Returns how many checkpoints there are."""
    return len(list(bucket.operator.list(keys.manifests_prefix)))


def test_an_sts_that_is_away_for_several_lives_of_credentials_costs_no_run(bucket: Bucket, digest: str) -> None:
    """The STS is away for four lives, and the issuer's key rotated meanwhile: the same attempt goes on to its end.

    Audit: B3
    """
    job = a_train_job(digest, AWAY_UID, epochs=EPOCHS)
    keys = InstanceKeys("team-a", AWAY_UID, "train", 0)
    with (
        StsRelay(bucket.minio.endpoint, LIFE_S) as relay,
        bucket.started_pod(job, "lead-run", LEAD_STS_ENDPOINT=relay.url) as pod,
    ):
        wait_for("a checkpoint", lambda: committed(bucket, keys))
        relay.away = True
        stay("the STS is away", LIVES * LIFE_S)
        assert pod.poll() is None and relay.refused_while_away
        assert committed(bucket, keys) < EPOCHS  # it waits for credentials, and writes with none that have ended
        bucket.issuer.rotate()
        bucket.environment("lead-run")  # kubelet writes another token
        given, relay.away = relay.given, False
        assert pod.wait(timeout=300) == 0, (bucket.folder / AWAY_UID / "log").read_text()[-9000:]
        assert relay.given > given
    last = max(info.key for info in bucket.operator.list(keys.manifests_prefix))
    found = json.loads(bucket.operator.get(last, max_bytes=1 << 20))
    assert (found["final"], found["epoch"], found["attempt"]) == (True, EPOCHS, 1)


def test_a_build_and_a_run_end_with_credentials_that_reach_nothing_else(bucket: Bucket, digest: str) -> None:
    """Audit: B3
    Audit: S13"""
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
