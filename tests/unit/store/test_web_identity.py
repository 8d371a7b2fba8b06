"""A pod's token against a real MinIO that trusts a token issuer: what its credentials may, and how they are renewed."""

import hashlib
import logging
import random
import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from minio.credentials.providers import StaticProvider
from minio.minioadmin import MinioAdmin

from lead_operator.cli.store_policies import ROLE_POLICIES, Tenant, role_policies
from lead_operator.settings import StorageProfile
from lead_protocol.job import BuildJob, DatasetSource, OwnerIdentity, StoreSource, TrainJob
from lead_protocol.job_access import job_access
from lead_protocol.store.object_store import StoreDenied, StoreUnavailable
from lead_protocol.store.open_store import open_store, s3_target
from lead_protocol.store.renewed_credentials import RenewedCredentials
from lead_protocol.store.s3 import S3Store
from lead_protocol.store.s3_requests import Deadline, Request
from lead_protocol.store.s3_target import MIB, S3Limits
from lead_protocol.store.session_policy import Access, session_policy
from lead_protocol.store.trusted_pool import TrustedPool
from lead_protocol.store.web_identity import TokenExchange, WebIdentity
from lead_testing.minio_server import ROOT_PASSWORD, ROOT_USER, MinioServer, minio_program
from lead_testing.store_proxy import StoreProxy
from lead_testing.token_issuer import ROLE_ARN, TokenIssuer

QUICK = S3Limits(read_s=10, total_s=20, part_bytes=5 * MIB, first_pause_s=0.01, longest_pause_s=0.1)
UID, OTHER_UID = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
DIGEST = "d" * 64
TENANTS = ("team-a", "team-b")
Opened = Callable[..., S3Store]


@pytest.fixture(scope="module")
def issuer() -> Iterator[TokenIssuer]:
    with TokenIssuer() as issuer:
        yield issuer


@pytest.fixture(scope="module")
def server(issuer: TokenIssuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MinioServer]:
    folder = tmp_path_factory.mktemp("minio")
    with MinioServer(minio_program(), folder, issuer.minio_environment(*ROLE_POLICIES)) as server:
        yield server


@pytest.fixture(scope="module")
def filled(server: MinioServer) -> str:
    """A bucket with one object in every folder, and a role for its pods."""
    bucket = f"test-{secrets.token_hex(6)}"
    server.admin().make_bucket(bucket)
    root = StaticProvider(ROOT_USER, ROOT_PASSWORD)
    admin = MinioAdmin(endpoint=server.endpoint, credentials=root, secure=False, region="us-east-1")
    shared = ("datasets/shared/", "weights/shared/")
    profile = StorageProfile("default", server.endpoint, bucket, secure=False, shared=shared)
    tenants = [Tenant(profile, namespace) for namespace in TENANTS]
    for name, policy in role_policies(tenants, run_account="lead-run", build_account="lead-build").items():
        admin.policy_add(name, policy=policy)
    store = S3Store(server.target(bucket))
    for namespace in TENANTS:
        for uid in (UID, OTHER_UID):
            for folder in ("runs", "builds", "control"):
                store.put(f"{folder}/{namespace}/{uid}/k", b"x")
        for key in (f"caches/{namespace}/{DIGEST}/k", f"caches/{namespace}/{'e' * 64}/k"):
            store.put(key, b"x")
        for folder in (f"datasets/{namespace}/town", f"datasets/{namespace}/city", f"weights/{namespace}"):
            store.put(f"{folder}/k", b"x")
    for folder in ("datasets/shared", "weights/shared"):
        store.put(f"{folder}/k", b"x")
    return bucket


@dataclass
class Pod:
    """What a pod finds: its variables and its token."""

    environ: dict[str, str]
    token_file: Path


@pytest.fixture
def pod(issuer: TokenIssuer, server: MinioServer, filled: str, tmp_path: Path) -> Pod:
    token_file = tmp_path / "token"
    issuer.write_token(token_file, "team-a", "lead-run")
    environ = {
        "LEAD_STORE_URL": f"s3://{filled}", "LEAD_S3_ENDPOINT": server.endpoint, "LEAD_S3_SECURE": "false",
        "LEAD_S3_CREDENTIALS": "webIdentity", "LEAD_STS_ROLE_ARN": ROLE_ARN, "LEAD_STORAGE_PROFILE": "embedded",
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(token_file),
    }  # fmt: skip
    return Pod(environ, token_file)


def opened(pod: Pod, access: Access | None = None, limits: S3Limits = QUICK) -> S3Store:
    store = open_store(pod.environ, credentials_dir=pod.token_file.parent / "none", limits=limits, access=access)
    assert isinstance(store, S3Store)
    return store


def a_train_job(namespace: str = "team-a") -> TrainJob:
    return TrainJob(
        owner=OwnerIdentity(namespace=namespace, name="drive", uid=UID), stage="train", seed=0, attempt=1,
        recipe="lead", epochs=1, nodes=1, procs_per_node=1, datasets=[DatasetSource(name="d", digest=DIGEST)],
    )  # fmt: skip


def a_build_job(namespace: str = "team-a", source: str = "datasets/team-a/town") -> BuildJob:
    return BuildJob(
        owner=OwnerIdentity(namespace=namespace, name="towns", uid=UID), generation=1, attempt=1, index=0,
        parallelism=1, recipe="lead", source=StoreSource(prefix=source), collections=["c"],
    )  # fmt: skip


def may(call: Callable[[], object]) -> bool:
    try:
        call()
    except StoreDenied:
        return False
    return True


def rights(store: S3Store, folder: str) -> str:
    """Returns which of get, list, put and delete the store allows below a folder: `glpd`."""
    made = f"{folder}/{secrets.token_hex(4)}"
    found = (
        ("g", may(lambda: store.get(f"{folder}/k", max_bytes=10))),
        ("l", may(lambda: list(store.list(f"{folder}/")))),
        ("p", may(lambda: store.put(made, b"y"))),
        ("d", may(lambda: store.delete(f"{folder}/k"))),
    )
    return "".join(letter for letter, allowed in found if allowed)


RUN_RIGHTS = {
    f"runs/team-a/{UID}": "glp",
    f"runs/team-a/{OTHER_UID}": "gl",
    f"caches/team-a/{DIGEST}": "gl",
    f"caches/team-a/{'e' * 64}": "",
    f"control/team-a/{UID}": "gl",
    f"control/team-a/{OTHER_UID}": "",
    "weights/team-a": "gl",
    "weights/shared": "gl",
    "weights/team-b": "",
    "datasets/team-a/town": "",
    "datasets/shared": "",
    f"builds/team-a/{UID}": "",
    f"runs/team-b/{UID}": "",
    f"caches/team-b/{DIGEST}": "",
    f"control/team-b/{UID}": "",
}
BUILD_RIGHTS = {
    "datasets/team-a/town": "gl",
    "datasets/team-a/city": "",
    "datasets/shared": "",
    f"builds/team-a/{UID}": "glp",
    f"builds/team-a/{OTHER_UID}": "",
    f"caches/team-a/{DIGEST}": "gl",
    f"runs/team-a/{UID}": "",
    f"control/team-a/{UID}": "",
    "weights/team-a": "",
    "datasets/team-b/town": "",
    f"builds/team-b/{UID}": "",
    f"caches/team-b/{DIGEST}": "",
}


def test_a_training_pod_may_do_exactly_what_its_run_needs(pod: Pod) -> None:
    """Audit: B3
    Audit: S13"""
    store = opened(pod, job_access(a_train_job()))
    assert {folder: rights(store, folder) for folder in RUN_RIGHTS} == RUN_RIGHTS


def test_a_build_pod_may_read_one_source_and_write_one_folder(pod: Pod, issuer: TokenIssuer) -> None:
    """Audit: B3
    Audit: S13"""
    issuer.write_token(pod.token_file, "team-a", "lead-build")
    store = opened(pod, job_access(a_build_job()))
    assert {folder: rights(store, folder) for folder in BUILD_RIGHTS} == BUILD_RIGHTS


def test_without_a_session_policy_the_role_alone_decides(pod: Pod) -> None:
    store = opened(pod)
    assert rights(store, f"runs/team-a/{OTHER_UID}") == "glp"
    assert rights(store, f"runs/team-b/{UID}") == ""


def test_a_job_that_names_another_namespace_is_refused_and_told_by_which_credentials(pod: Pod) -> None:
    """Audit: B3"""
    store = opened(pod, job_access(a_train_job("team-b")))
    with pytest.raises(StoreDenied) as caught:
        store.put(f"runs/team-b/{UID}/k", b"x")
    message = str(caught.value)
    for part in ("PUT", f"runs/team-b/{UID}/k", "AccessDenied", "webIdentity", ROLE_ARN, "storage profile embedded"):
        assert part in message
    assert caught.value.of_key is False


def test_the_longest_session_policy_is_taken_by_the_store(pod: Pod, filled: str) -> None:
    """MinIO counts its own spelling of it, not ours."""
    jobs = [
        a_train_job().model_copy(
            update={"datasets": [DatasetSource(name=f"d{n}", digest=f"{n:064x}") for n in range(count)]}
        )
        for count in range(1, 12)
    ]
    policies = [(session_policy(job_access(job), filled, ""), job) for job in jobs]
    longest, job = max(policies, key=lambda found: len(found[0]))
    assert len(longest) > 1700
    opened(pod, job_access(job)).put(f"runs/team-a/{UID}/k", b"x")


def test_what_may_not_be_read_may_not_be_copied_either(pod: Pod, filled: str) -> None:
    """Audit: B3"""
    store, key = opened(pod, job_access(a_train_job())), f"runs/team-a/{UID}/{secrets.token_hex(4)}"

    def copy(source: str) -> None:
        request = Request("PUT", key, headers={"x-amz-copy-source": f"/{filled}/{source}"})
        store._requests.send(request, Deadline(20), max_bytes=10**6)

    copy(f"runs/team-a/{OTHER_UID}/k")
    for source in (f"runs/team-b/{UID}/k", f"caches/team-b/{DIGEST}/k", "datasets/team-a/town/k"):
        with pytest.raises(StoreDenied, match="AccessDenied"):
            copy(source)


def test_big_files_are_uploaded_and_read_back_with_temporary_credentials(pod: Pod, tmp_path: Path) -> None:
    store = opened(pod, job_access(a_train_job()))
    big = random.Random(7).randbytes(11 * MIB)
    (tmp_path / "big").write_bytes(big)
    digest = hashlib.sha256(big).hexdigest()
    key = f"runs/team-a/{UID}/{secrets.token_hex(4)}"
    assert store.create_file(key, tmp_path / "big", sha256=digest) is True
    assert store.create(key, b"other") is False
    store.download(key, tmp_path / "again", size=len(big), sha256=digest)
    assert store.head(f"runs/team-a/{UID}/nothing") is None


def test_no_key_or_token_is_in_a_message_a_log_or_a_repr(pod: Pod, caplog: pytest.LogCaptureFixture) -> None:
    """Audit: S17"""
    caplog.set_level(logging.DEBUG)
    store = opened(pod, job_access(a_train_job()))
    store.put(f"runs/team-a/{UID}/k", b"x")
    provider = store._target.credentials
    held = provider.current(1)
    with pytest.raises(StoreDenied) as denied:
        store.put("datasets/team-a/k", b"x")
    token = pod.token_file.read_text()
    pod.token_file.write_text(f"{token[:-10]}AAAAAAAAAA")  # a signature that does not fit
    with pytest.raises(StoreUnavailable) as refused:
        opened(pod, limits=S3Limits(total_s=1)).put("k", b"x")
    seen = f"{store._target!r} {provider!r} {held!r} {denied.value} {refused.value} {caplog.text}"
    for secret in (held.secret_key, held.session_token, token, token.split(".")[1], token.split(".")[2]):
        assert secret and secret not in seen


def test_the_token_is_read_again_at_each_exchange(pod: Pod, issuer: TokenIssuer) -> None:
    store = opened(pod, job_access(a_train_job()))
    store.put(f"runs/team-a/{UID}/k", b"x")
    issuer.write_token(pod.token_file, "team-b", "lead-run")
    provider = store._target.credentials
    assert provider.replaced(provider.current(1), of_key=True, since=float("inf"))
    with pytest.raises(StoreDenied):  # the session policy is team-a's, the role now team-b's
        store.put(f"runs/team-a/{UID}/k", b"x")


def test_credentials_that_the_store_no_longer_takes_are_replaced_once_and_the_request_is_sent_again(
    pod: Pod, server: MinioServer
) -> None:
    with StoreProxy(server.endpoint) as proxy:
        pod.environ["LEAD_S3_ENDPOINT"] = proxy.endpoint
        store = opened(pod, job_access(a_train_job()))
        key = f"runs/team-a/{UID}/k"
        store.put(key, b"x")
        proxy.plan("403-expired", method="PUT")
        store.put(key, b"y")
        assert proxy.seen.count("POST") == 2
        proxy.plan("403-expired", method="PUT", times=10)
        with pytest.raises(StoreDenied, match="ExpiredToken"):
            store.put(key, b"z")
        assert proxy.seen.count("POST") == 3


def test_threads_that_all_have_ended_credentials_exchange_once_and_lose_no_request(
    pod: Pod, server: MinioServer
) -> None:
    with StoreProxy(server.endpoint) as proxy:
        pod.environ["LEAD_S3_ENDPOINT"] = proxy.endpoint
        store = opened(pod, job_access(a_train_job()))
        store.put(f"runs/team-a/{UID}/k", b"x")
        proxy.expired_keys.add(store._target.credentials.current(1).access_key)
        together = threading.Barrier(8)

        def write(number: int) -> None:
            together.wait(20)
            for again in range(5):
                store.put(f"runs/team-a/{UID}/{number}-{again}", b"x")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(write, range(8)))
        assert proxy.seen.count("POST") == 2
        written = {found.key for found in store.list(f"runs/team-a/{UID}/")}
        assert {f"runs/team-a/{UID}/{number}-{again}" for number in range(8) for again in range(5)} <= written


def test_a_store_whose_sts_is_away_at_first_is_waited_for(pod: Pod, server: MinioServer) -> None:
    with StoreProxy(server.endpoint) as proxy:
        pod.environ["LEAD_STS_ENDPOINT"] = f"http://{proxy.endpoint}"
        proxy.plan("drop-before", method="POST")
        proxy.plan("503", method="POST")
        store = opened(pod, job_access(a_train_job()))
        store.put(f"runs/team-a/{UID}/k", b"x")
        assert proxy.seen.count("POST") == 3
        assert proxy.seen.count("PUT") == 0  # the store itself is elsewhere


def test_an_sts_that_stays_away_is_named_as_a_store_that_is_away(pod: Pod) -> None:
    pod.environ["LEAD_STS_ENDPOINT"] = "http://127.0.0.1:9"
    with pytest.raises(StoreUnavailable, match=r"STS http://127\.0\.0\.1:9/.*no answer"):
        opened(pod, limits=S3Limits(total_s=1)).put("k", b"x")


@pytest.mark.parametrize(
    "token, told",
    [
        ({"audience": "https://kubernetes.default.svc"}, "InvalidParameterValue"),
        ({"issued_at": 1_000_000_000}, "Token is expired"),
        ({"claims": {"iss": "http://elsewhere", "sub": ""}}, "sub"),
    ],
    ids=["for the API server", "of long ago", "of nobody"],
)
def test_a_token_that_the_store_does_not_take_is_named(
    pod: Pod, issuer: TokenIssuer, token: dict[str, Any], told: str
) -> None:
    issuer.write_token(pod.token_file, "team-a", "lead-run", **token)
    with pytest.raises(StoreUnavailable, match=told):
        opened(pod, limits=S3Limits(total_s=1)).put(f"runs/team-a/{UID}/k", b"x")


def test_a_token_of_another_account_of_the_namespace_may_nothing(pod: Pod, issuer: TokenIssuer) -> None:
    """Audit: B3"""
    issuer.write_token(pod.token_file, "team-a", "default")
    store = opened(pod)
    for folder in (*RUN_RIGHTS, *BUILD_RIGHTS):
        assert rights(store, folder) == ""


def test_a_missing_token_file_is_named(pod: Pod) -> None:
    pod.token_file.unlink()
    with pytest.raises(StoreUnavailable, match=r"token file .* cannot be read: No such file.*projected ServiceAccount"):
        opened(pod, limits=S3Limits(total_s=1)).put("k", b"x")


def test_keys_of_the_issuer_that_were_rotated_are_fetched_by_the_store(pod: Pod, issuer: TokenIssuer) -> None:
    issuer.rotate()
    issuer.write_token(pod.token_file, "team-a", "lead-run")
    opened(pod).put(f"runs/team-a/{UID}/k", b"x")


@dataclass
class Clock:
    """Seconds that a test lets pass."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def renewing(pod: Pod, proxy: StoreProxy, clock: Clock) -> S3Store:
    """Opens the pod's store with its STS behind the proxy, by a clock of the test."""
    identity = WebIdentity(f"http://{proxy.endpoint}/", pod.token_file, ROLE_ARN)
    provider = RenewedCredentials(TokenExchange(identity, TrustedPool(None)).obtain, identity.source, clock=clock)
    return S3Store(replace(s3_target(pod.environ, credentials_dir=pod.token_file.parent), provider=provider), QUICK)


def test_an_sts_that_is_away_for_ten_minutes_costs_no_request(pod: Pod, server: MinioServer) -> None:
    clock = Clock()
    with StoreProxy(server.endpoint) as proxy:
        store = renewing(pod, proxy, clock)
        key = f"runs/team-a/{UID}/k"
        store.put(key, b"x")
        clock.now += 2760  # renewal is due
        proxy.plan("drop-before", method="POST", times=10**6)
        for minute in range(10):
            store.put(key, str(minute).encode())
            clock.now += 60
        assert proxy.seen.count("POST", fault="drop-before") >= 5
        proxy.clear()
        clock.now += 60
        store.put(key, b"x")
        assert proxy.seen.count("POST", fault="") == 2


def test_threads_go_on_over_many_lives_of_their_credentials(pod: Pod, server: MinioServer) -> None:
    clock, lives = Clock(), 5
    with StoreProxy(server.endpoint) as proxy:
        store = renewing(pod, proxy, clock)
        steps = threading.Barrier(8, action=lambda: setattr(clock, "now", clock.now + 360))

        def write(number: int) -> None:
            for _ in range(10 * lives):
                steps.wait(60)
                store.put(f"runs/team-a/{UID}/{number}", b"x")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(write, range(8)))
        assert lives <= proxy.seen.count("POST") <= 2 * lives
