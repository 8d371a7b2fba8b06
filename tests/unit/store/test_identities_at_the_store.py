"""Who may do what in the embedded store: a real MinIO, what storage-init installs, tokens of a made-up issuer."""

import io
import json
import re
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import urllib3
from minio import Minio
from minio.commonconfig import CopySource
from minio.credentials.providers import StaticProvider, WebIdentityProvider
from minio.error import MinioAdminException, S3Error
from minio.minioadmin import MinioAdmin

from lead_operator.cli.storage_init import Account, EmbeddedStore, ProfileAccounts, init_storage
from lead_operator.cli.store_policies import ROLE_POLICIES
from lead_operator.settings import StorageProfile
from lead_testing.minio_server import ROOT_PASSWORD, ROOT_USER, MinioServer, minio_program
from lead_testing.raw_s3 import Key, RawS3
from lead_testing.token_issuer import AUDIENCE, ROLE_ARN, TokenIssuer

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
BUCKET, PREFIX = "driving", "team/a"
NAMESPACES = ("team-a", "team-b")
SHARED = ("datasets/common/", "weights/common/")
OBJECTS = {  # what each holds one of, with the folder's owner
    "datasets/team-a/": "team-a", "datasets/team-b/": "team-b", "datasets/common/": "", "datasets/carla/": "nobody",
    "weights/team-a/": "team-a", "weights/team-b/": "team-b", "weights/common/": "",
    "builds/team-a/u/": "team-a", "builds/team-b/u/": "team-b",
    "caches/team-a/d/": "team-a", "caches/team-b/d/": "team-b",
    "runs/team-a/u/": "team-a", "runs/team-b/u/": "team-b",
    "control/team-a/u/": "team-a", "control/team-b/u/": "team-b",
}  # fmt: skip


@dataclass(frozen=True)
class Store:
    minio: MinioServer
    issuer: TokenIssuer
    embedded: EmbeddedStore

    def exchange(self, token: str, **asked: Any) -> StaticProvider:
        """Returns the credentials that the store gives for a token; raises ValueError with its answer."""
        provider = WebIdentityProvider(
            jwt_provider_func=lambda: {"access_token": token, "expires_in": "0"},
            sts_endpoint=f"http://{self.minio.endpoint}",
            role_arn=ROLE_ARN,
            http_client=urllib3.PoolManager(retries=False),
            **asked,
        )
        found = provider.retrieve()
        return StaticProvider(found.access_key, found.secret_key, found.session_token)

    def pod(self, namespace: str, account: str, **asked: Any) -> Minio:
        return self.client(self.exchange(self.issuer.token(namespace, account), **asked))

    def key(self, account: Account) -> Minio:
        return self.client(StaticProvider(account.access_key, account.secret_key))

    def client(self, provider: StaticProvider, *, headers: dict[str, str] | None = None) -> Minio:
        pool = _WithHeaders(headers or {}, retries=False)
        return Minio(self.minio.endpoint, credentials=provider, secure=False, region="us-east-1", http_client=pool)


class _WithHeaders(urllib3.PoolManager):
    """Sends further headers, which a signature need not cover."""

    def __init__(self, further: dict[str, str], **options: Any) -> None:
        super().__init__(**options)
        self._further = further

    def urlopen(self, method: str, url: str, redirect: bool = True, **options: Any) -> Any:
        options["headers"] = {**dict(options.get("headers") or {}), **self._further}
        return super().urlopen(method, url, redirect=redirect, **options)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with TokenIssuer() as issuer:
        environment = issuer.minio_environment(*ROLE_POLICIES)
        with MinioServer(minio_program(), tmp_path_factory.mktemp("minio"), environment) as minio:
            profile = StorageProfile("default", minio.endpoint, BUCKET, prefix=PREFIX, secure=False, shared=SHARED)
            people = {name: Account(f"lead-data-default.{name}", f"secret-of-{name}") for name in NAMESPACES}
            viewers = {name: Account(f"lead-view-default.{name}", f"view-of-{name}") for name in NAMESPACES}
            entry = ProfileAccounts(profile, Account("lead-operator-default", "operator-secret"), people, viewers)
            embedded = EmbeddedStore(Account(ROOT_USER, ROOT_PASSWORD), (entry,))
            init_storage(embedded)
            for folder in OBJECTS:
                minio.admin().put_object(BUCKET, f"{PREFIX}/{folder}k", io.BytesIO(b"1"), 1)
            minio.admin().put_object(BUCKET, "another/k", io.BytesIO(b"1"), 1)
            yield Store(minio, issuer, embedded)


def allowed(action: Callable[[], Any]) -> bool:
    try:
        action()
    except S3Error as error:
        assert error.code == "AccessDenied", error
        return False
    return True


def folders(client: Minio, verb: str) -> set[str]:
    """Returns the folders of OBJECTS where a client may do something."""

    def attempt(folder: str) -> None:
        key = f"{PREFIX}/{folder}"
        if verb == "get":
            client.get_object(BUCKET, f"{key}k").close()
        elif verb == "list":
            assert list(client.list_objects(BUCKET, prefix=key))
        elif verb == "put":
            client.put_object(BUCKET, f"{key}new-{secrets.token_hex(4)}", io.BytesIO(b"1"), 1)
        else:
            name = f"{key}old-{secrets.token_hex(4)}"
            client.remove_object(BUCKET, name)  # a missing one is asked for its right too

    return {folder for folder in OBJECTS if allowed(lambda folder=folder: attempt(folder))}  # type: ignore[misc]


def of(namespace: str, *roots: str) -> set[str]:
    return {folder for folder in OBJECTS if folder.startswith(tuple(f"{root}/{namespace}/" for root in roots))}


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_a_training_pod_reads_what_its_namespace_made_and_writes_its_runs(store: Store, namespace: str) -> None:
    """What the run role of one namespace may of each folder of both; it deletes nothing. Audit: B3."""
    pod = store.pod(namespace, "lead-run")
    readable = of(namespace, "caches", "runs", "control", "weights") | {"weights/common/"}
    assert folders(pod, "get") == folders(pod, "list") == readable
    assert folders(pod, "put") == of(namespace, "runs")
    assert folders(pod, "delete") == set()


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_a_build_pod_reads_raw_data_and_writes_its_builds(store: Store, namespace: str) -> None:
    """A build reads its own and shared raw data, and neither writes a cache nor a run. Audit: B3, S-6."""
    pod = store.pod(namespace, "lead-build")
    readable = of(namespace, "datasets", "builds", "caches") | {"datasets/common/"}
    assert folders(pod, "get") == folders(pod, "list") == readable
    assert folders(pod, "put") == of(namespace, "builds")
    assert folders(pod, "delete") == set()


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_the_data_key_of_a_namespace_is_for_its_raw_data_and_results(store: Store, namespace: str) -> None:
    """People upload with a key that reaches no other namespace, no records and no cache. Audit: B3."""
    people = store.key(store.embedded.profiles[0].people[namespace])
    own = of(namespace, "datasets", "weights")
    assert folders(people, "get") == folders(people, "list") == own | of(namespace, "runs", "caches")
    assert folders(people, "put") == folders(people, "delete") == own


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_the_view_key_of_a_namespace_reads_its_runs_and_caches_alone(store: Store, namespace: str) -> None:
    viewer = store.key(store.embedded.profiles[0].viewers[namespace])
    assert folders(viewer, "get") == folders(viewer, "list") == of(namespace, "runs", "caches")
    assert folders(viewer, "put") == folders(viewer, "delete") == set()


def test_the_operator_writes_what_it_and_pods_made_and_never_peoples_data(store: Store) -> None:
    """The operator's key reads everything, and has neither Put nor Delete on datasets/ and weights/.

    Audit: minor-raw-writes.
    """
    operator = store.key(store.embedded.profiles[0].operator)
    made = {folder for folder in OBJECTS if not folder.startswith(("datasets/", "weights/"))}
    assert folders(operator, "get") == folders(operator, "list") == set(OBJECTS)
    assert folders(operator, "put") == folders(operator, "delete") == made
    target = f"{PREFIX}/caches/team-a/d/copied"
    operator.copy_object(BUCKET, target, CopySource(BUCKET, f"{PREFIX}/builds/team-a/u/k"))


def test_nobody_leaves_the_prefix_of_the_profile(store: Store) -> None:
    entry = store.embedded.profiles[0]
    keys = (entry.operator, *entry.people.values(), *entry.viewers.values())
    clients = [store.key(account) for account in keys]
    clients += [store.pod("team-a", account) for account in ("lead-run", "lead-build")]
    for client in clients:
        assert not allowed(lambda client=client: client.get_object(BUCKET, "another/k"))  # type: ignore[misc]
        assert not allowed(lambda client=client: list(client.list_objects(BUCKET)))  # type: ignore[misc]
        assert not allowed(lambda client=client: list(client.list_objects(BUCKET, prefix="another/")))  # type: ignore[misc]


def test_one_namespace_alone_has_all_raw_data(store: Store) -> None:
    """The plain install for one trusted user keeps `datasets/<name>`: nobody else is there to be kept out."""
    entry = store.embedded.profiles[0]
    alone = replace(
        entry,
        profile=replace(entry.profile, shared=("datasets/", "weights/")),
        people={"team-a": entry.people["team-a"]},
        viewers={"team-a": entry.viewers["team-a"]},
    )
    try:
        init_storage(replace(store.embedded, profiles=(alone,), alone=True))
        every = {folder for folder in OBJECTS if folder.startswith(("datasets/", "weights/"))}
        assert folders(store.key(entry.people["team-a"]), "put") == every
        readable = of("team-a", "builds", "caches") | {folder for folder in every if folder.startswith("datasets/")}
        assert folders(store.pod("team-a", "lead-build"), "get") == readable
        assert folders(store.pod("team-b", "lead-build"), "get") == set()
    finally:
        init_storage(store.embedded)


def test_a_request_cannot_say_that_it_is_somebody_else(store: Store) -> None:
    """MinIO reads a condition's key from headers and parameters first; the token's own subject decides. Audit: B3."""
    theirs, ours = (f"system:serviceaccount:{name}:lead-run" for name in ("team-b", "team-a"))
    credentials = store.exchange(store.issuer.token("team-a", "lead-run"))
    key = f"{PREFIX}/runs/team-b/u/k"
    for headers in ({"Sub": theirs}, {"sub": theirs}, {"Sub": f"{theirs},{ours}"}):
        liar = store.client(credentials, headers=headers)
        assert not allowed(lambda liar=liar: liar.get_object(BUCKET, key))  # type: ignore[misc]
    plain = store.client(credentials)
    for name in ("Sub", "sub"):
        extra = {name: theirs}
        assert not allowed(lambda extra=extra: plain.get_object(BUCKET, key, extra_query_params=extra))  # type: ignore[misc]


def test_no_header_or_second_parameter_lists_what_may_not_be_listed(store: Store) -> None:
    """MinIO compares a header `Prefix`, or any of several parameters, and lists by the first parameter. Audit: B3."""
    theirs = f"{PREFIX}/runs/team-b/"
    people = store.embedded.profiles[0].people["team-a"]
    clients = {"runs": StaticProvider(people.access_key, people.secret_key)}
    clients |= {"caches": store.exchange(store.issuer.token("team-a", "lead-run"))}
    clients |= {"builds": store.exchange(store.issuer.token("team-a", "lead-build"))}
    for folder, provider in clients.items():
        ours = f"{PREFIX}/{folder}/team-a/"
        liars = [store.client(provider, headers={name: ours}) for name in ("Prefix", "prefix", "PREFIX")]
        liars.append(store.client(provider, headers={"Prefix": f"{ours},{theirs}"}))
        for liar in liars:
            for asked in (theirs, "", f"{PREFIX}/control/"):
                assert not allowed(lambda liar=liar, asked=asked: list(liar.list_objects(BUCKET, prefix=asked)))  # type: ignore[misc]
        assert list(store.client(provider).list_objects(BUCKET, prefix=ours))
        for name in ("prefix", "Prefix"):
            assert list_raw(store, provider, [("prefix", theirs), (name, ours)]) == "AccessDenied"
            assert list_raw(store, provider, [("prefix", "${s3:prefix}"), (name, ours)]) == "AccessDenied"
        assert list_raw(store, provider, [("prefix", ours)]) == ""


def list_raw(store: Store, provider: StaticProvider, query: list[tuple[str, str]]) -> str:
    """Returns the error of a listing with these parameters, of which one may be there twice; empty: it lists."""
    found = provider.retrieve()
    key = Key(found.access_key, found.secret_key, found.session_token or "")
    return RawS3(f"http://{store.minio.endpoint}").signed(key, "GET", BUCKET, [("list-type", "2"), *query]).code


def test_a_session_policy_narrows_and_never_widens(store: Store) -> None:
    """A pod asks for its own run alone; what it asks for beyond its role it does not get. Audit: B3."""
    resources = [f"arn:aws:s3:::{BUCKET}/{PREFIX}/runs/team-{team}/u/*" for team in "ab"]
    actions = ["s3:GetObject", "s3:DeleteObject"]
    policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": actions, "Resource": resources}]}
    pod = store.pod("team-a", "lead-run", policy=json.dumps(policy))
    assert folders(pod, "get") == {"runs/team-a/u/"}
    assert folders(pod, "put") == folders(pod, "delete") == folders(pod, "list") == set()


def test_other_service_accounts_get_nothing(store: Store) -> None:
    """A token of `default`, of another namespace, or of the operator itself opens no folder. Audit: B3."""
    for namespace, account in (("team-a", "default"), ("team-c", "lead-run"), ("lead-system", "lead-operator")):
        assert folders(store.pod(namespace, account), "get") == set()


def test_no_token_but_the_issuers_is_taken(store: Store) -> None:
    """Expired, of another audience, of another issuer, unsigned, or signed by a secret: refused. Audit: B3."""
    issuer, now = store.issuer, time.time()
    refused = {
        "expired": issuer.token("team-a", "lead-run", issued_at=now - 7200, lives_s=3600),
        "not yet": issuer.token("team-a", "lead-run", issued_at=now + 3600),
        "audience": issuer.token("team-a", "lead-run", audience="https://kubernetes.default.svc"),
        "unsigned": issuer.unsigned_token("team-a", "lead-run"),
        # MinIO takes tokens signed by its client's secret, under the client's name: an empty secret is everybody's.
        "empty secret": issuer.forged_token(AUDIENCE, b"", "team-a", "lead-run"),
        "audience as secret": issuer.forged_token(AUDIENCE, AUDIENCE.encode(), "team-a", "lead-run"),
        "not a token": "x.y.z",
    }
    with TokenIssuer() as other:
        refused["foreign issuer"] = other.token("team-a", "lead-run")
    for why, token in refused.items():
        with pytest.raises(ValueError, match="failed with HTTP status code 40"):
            store.exchange(token)
            pytest.fail(f"{why}: a token was taken that must not be")


def test_a_token_signed_by_a_new_key_of_the_issuer_is_taken_at_once(store: Store) -> None:
    before = store.pod("team-a", "lead-run")
    store.issuer.rotate()
    assert folders(store.pod("team-a", "lead-run"), "put") == folders(before, "put") == {"runs/team-a/u/"}


def test_credentials_last_an_hour_whatever_is_asked_for(store: Store) -> None:
    """DurationSeconds is not bounded by the token in MinIO; a setting of the server bounds it. Audit: B3."""
    for asked in (900, 3600, 7 * 86400):
        token = store.issuer.token("team-a", "lead-run")
        query = {"Action": "AssumeRoleWithWebIdentity", "Version": "2011-06-15", "RoleArn": ROLE_ARN}
        form = {**query, "WebIdentityToken": token, "DurationSeconds": str(asked)}
        answer = urllib3.request("POST", f"http://{store.minio.endpoint}/", body=urlencode(form), headers=FORM)
        assert answer.status == 200
        (ends,) = re.findall("<Expiration>(.*)</Expiration>", answer.data.decode())
        assert (datetime.fromisoformat(ends) - datetime.now(UTC)).total_seconds() <= 3601


def test_no_identity_can_make_itself_another_key(store: Store) -> None:
    """In MinIO anybody may make service accounts of his own, which never end, unless a policy denies it. Audit: B3."""
    entry = store.embedded.profiles[0]
    keys = (entry.operator, *entry.people.values(), *entry.viewers.values())
    providers = [StaticProvider(key.access_key, key.secret_key) for key in keys]
    providers += [store.exchange(store.issuer.token("team-a", account)) for account in ("lead-run", "lead-build")]
    for provider in providers:
        client = MinioAdmin(endpoint=store.minio.endpoint, credentials=provider, secure=False, region="us-east-1")
        with pytest.raises(MinioAdminException, match="AccessDenied"):
            client.add_service_account(access_key="lasting-key", secret_key="lasting-secret")
        with pytest.raises(MinioAdminException, match="AccessDenied"):
            client.user_list()


def test_the_operators_key_is_rotated_under_live_use(store: Store, tmp_path: Path) -> None:
    """The mounted files change after the store's side did; the operator's next call goes through. Audit: B3."""
    from lead_protocol.store.open_store import open_store

    entry = store.embedded.profiles[0]
    environ = {
        "LEAD_STORE_URL": f"s3://{BUCKET}/{PREFIX}",
        "LEAD_S3_ENDPOINT": store.minio.endpoint, "LEAD_S3_SECURE": "false",
    }  # fmt: skip
    (tmp_path / "access-key").write_text(entry.operator.access_key)
    (tmp_path / "secret-key").write_text(entry.operator.secret_key)
    operator = open_store(environ, credentials_dir=tmp_path)
    assert operator.get("runs/team-a/u/k", max_bytes=10) == b"1"
    rotated = replace(entry, operator=replace(entry.operator, secret_key="another-operator-secret"))
    try:
        init_storage(replace(store.embedded, profiles=(rotated,)))
        (tmp_path / "secret-key").write_text("another-operator-secret")
        operator.put("control/team-a/u/k", b"2")
        assert operator.get("runs/team-a/u/k", max_bytes=10) == b"1"
    finally:
        init_storage(store.embedded)
