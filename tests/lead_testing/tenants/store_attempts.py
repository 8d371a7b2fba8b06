"""What alice tries from a pod of hers: at the object store, at the API server, and at ports of the release.

    python3 store_attempts.py SCENE.json      prints a line of JSON an attempt

Runs in a pod by the standard library alone, with nothing of the project but `raw_s3` beside it.
"""

import base64
import hashlib
import hmac
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lead_testing.raw_s3 import Answer, Key, Query, RawS3

ROOTS = ("datasets", "weights", "caches", "builds", "runs", "control")
CANARY = "bobs-canary-"
DENIED = "^403 AccessDenied"
NOT_OFFERED = "^501 NotImplemented"  # by our MinIO to anybody
BAD_TOKEN = "^40[03] (InvalidParameterValue|AccessDenied|InvalidIdentityToken)"
FORBIDDEN = "^40[13] .*([Ff]orbidden|Unauthorized|cannot|token)"
NOBODY = "^0 "  # no answer at all
QUICK_S = 3.0


@dataclass(frozen=True)
class Scene:
    """Where everything is, as alice could know it; keys of objects are those that bob really has."""

    bucket: str
    alice: str  # namespaces
    bob: str
    release: str
    store: str  # URLs
    store_pod: str  # address of MinIO's pod
    operator_pod: str
    ca_file: str
    api: str
    api_ca_file: str
    role: str
    tokens: Mapping[str, str]  # run, build, default (audience lead-store), api (the API server's own)
    data_key: tuple[str, str]
    theirs: Mapping[str, str]  # root → a key of bob's
    mine: str  # uid of alice's run, which trains
    my_cache: str  # uid of alice's DatasetCache
    my_digest: str

    @property
    def s3(self) -> RawS3:
        """The store."""
        return RawS3(self.store, self.ca_file)


class Keys:
    """Alice's credentials, by who they are of."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._made: dict[str, Key] = {"data": Key(*scene.data_key), "nobody": Key("nobody", "nothing-at-all")}

    def of(self, who: str) -> Key:
        """Returns the key of `run`, `build`, `default`, `data` or `nobody`."""
        if who not in self._made:
            answer, self._made[who] = self._scene.s3.exchange(self._scene.tokens[who], self._scene.role)
            assert answer.status == 200 or who == "default", f"{who}: {answer}"
        return self._made[who]


Does = Callable[[Scene, Keys], Answer]


@dataclass(frozen=True)
class StoreAttempt:
    """One attempt: `must` is a regular expression of "<status> <code> <body>"."""

    name: str
    does: Does
    must: str = DENIED


def s3(
    who: str,
    method: str,
    key: str,
    query: Query = (),
    *,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
) -> Does:
    """Returns a signed call; `{bob}`, `{alice}`, `{datasets}` … in texts stand for what the scene has."""

    def does(scene: Scene, keys: Keys) -> Answer:
        asked = [(name, _filled(value, scene)) for name, value in query]
        sent = {name: _filled(value, scene) for name, value in (headers or {}).items()}
        sent |= {"content-md5": base64.b64encode(hashlib.md5(body).digest()).decode()} if body else {}
        path = f"{scene.bucket}/{_filled(key, scene)}" if key else scene.bucket
        return scene.s3.signed(keys.of(who), method, path, asked, body=body, headers=sent)

    return does


def listing(who: str, prefix: str, *further: tuple[str, str], headers: Mapping[str, str] | None = None) -> Does:
    """Returns a listing of a prefix."""
    return s3(who, "GET", "", [("list-type", "2"), ("prefix", prefix), *further], headers=headers)


def admin(who: str, method: str, path: str, query: Query = ()) -> Does:
    """Returns a call of MinIO's own administration."""
    return lambda scene, keys: scene.s3.signed(keys.of(who), method, f"minio/admin/v3/{path}", query)


def bare(method: str, url: str, *, token: str = "", headers: Mapping[str, str] | None = None) -> Does:
    """Returns an unsigned call, with a bearer token of the scene where one is named."""

    def does(scene: Scene, keys: Keys) -> Answer:
        bearer = {"Authorization": f"Bearer {scene.tokens[token]}"} if token else {}
        server, _, path = _filled(url, scene).partition("|")
        ca_file = scene.api_ca_file if server == scene.api else scene.ca_file
        sent = {**bearer, **{name: _filled(value, scene) for name, value in (headers or {}).items()}}
        path, _, query = path.partition("?")
        asked = [(name, value) for name, _, value in (part.partition("=") for part in query.split("&") if part)]
        return RawS3(server, ca_file).send(method, path, asked, headers=sent, timeout_s=QUICK_S)

    return does


def exchange(token: Callable[[Scene], str], **asked: Any) -> Does:
    """Returns a request to STS with a token."""
    return lambda scene, keys: scene.s3.exchange(token(scene), scene.role, **asked)[0]


def with_wider_policy(scene: Scene, keys: Keys) -> Answer:
    """Asks for a session that may do all, and reads bob's data with it."""
    policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    answer, key = scene.s3.exchange(scene.tokens["run"], scene.role, policy=json.dumps(policy))
    return scene.s3.signed(key, "GET", f"{scene.bucket}/{scene.theirs['runs']}") if key.access else answer


def part_of(scene: Scene, keys: Keys) -> Answer:
    """Begins an upload in her own folder, and fills it with a part of bob's object."""
    own = f"{scene.bucket}/runs/{scene.alice}/{scene.mine}/stolen"
    begun = scene.s3.signed(keys.of("run"), "POST", own, [("uploads", "")])
    upload = begun.body.partition("<UploadId>")[2].partition("<")[0]
    source = {"x-amz-copy-source": f"/{scene.bucket}/{scene.theirs['runs']}"}
    return scene.s3.signed(keys.of("run"), "PUT", own, [("partNumber", "1"), ("uploadId", upload)], headers=source)


def of_the_private_bucket(who: str) -> Does:
    """Returns the reading of an object in the bucket of a profile that is bob's alone."""
    return lambda scene, keys: scene.s3.signed(keys.of(who), "GET", f"private/{scene.theirs['private']}")


def delete_many(scene: Scene, keys: Keys) -> Answer:
    """Deletes several of bob's objects in one request, which answers 200 with an error each."""
    named = "".join(f"<Object><Key>{key}</Key></Object>" for key in scene.theirs.values())
    body = f"<Delete>{named}</Delete>".encode()
    md5 = base64.b64encode(hashlib.md5(body).digest()).decode()
    checked = {"content-md5": md5}
    return scene.s3.signed(keys.of("run"), "POST", scene.bucket, [("delete", "")], body=body, headers=checked)


def presigned(who: str, root: str) -> Does:
    """Returns the use of a link to bob's object that alice has signed."""
    return lambda scene, keys: scene.s3.presigned(keys.of(who), f"{scene.bucket}/{scene.theirs[root]}")


def posted_form(scene: Scene, keys: Keys) -> Answer:
    """Uploads below bob's data as a browser's form does, which is authorised in another way than PUT."""
    key, day = keys.of("run"), time.strftime("%Y%m%d", time.gmtime())
    credential = f"{key.access}/{day}/us-east-1/s3/aws4_request"
    fields = {
        "key": f"runs/{scene.bob}/posted", "x-amz-algorithm": "AWS4-HMAC-SHA256", "x-amz-credential": credential,
        "x-amz-date": f"{day}T000000Z", "x-amz-security-token": key.token,
    }  # fmt: skip
    ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 600))
    conditions = [{"bucket": scene.bucket}, *({name: value} for name, value in fields.items())]
    policy = base64.b64encode(json.dumps({"expiration": ends, "conditions": conditions}).encode()).decode()
    signing = f"AWS4{key.secret}".encode()
    for part in (day, "us-east-1", "s3", "aws4_request"):
        signing = hmac.digest(signing, part.encode(), "sha256")
    fields |= {"policy": policy, "x-amz-signature": hmac.digest(signing, policy.encode(), "sha256").hex()}
    lines = "".join(
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields.items()
    )
    body = f'{lines}--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n1\r\n--b--\r\n'.encode()
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    return scene.s3.send("POST", f"/{scene.bucket}", body=body, headers=kind)


def _hour_at_most(scene: Scene, keys: Keys) -> Answer:
    answer, _ = scene.s3.exchange(scene.tokens["run"], scene.role, duration_s=7 * 86400)
    ends = answer.body.partition("<Expiration>")[2].partition("<")[0].partition(".")[0].rstrip("Z")
    hours = (time.mktime(time.strptime(ends, "%Y-%m-%dT%H:%M:%S")) - time.mktime(time.gmtime())) / 3600
    return Answer(answer.status, f"credentials end in {'an hour' if hours < 1.02 else f'{hours:.0f} hours'}")


def _forged(algorithm: str, secret: bytes = b"") -> Callable[[Scene], str]:
    def token(scene: Scene) -> str:
        head = json.loads(_decoded(scene.tokens["run"].split(".")[0])) | {"alg": algorithm}
        body = json.loads(_decoded(scene.tokens["run"].split(".")[1]))
        body["sub"] = f"system:serviceaccount:{scene.bob}:lead-run"
        text = ".".join(
            base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in (head, body)
        )
        sign = hmac.digest(secret, text.encode(), "sha256") if algorithm == "HS256" else b""
        return f"{text}.{base64.urlsafe_b64encode(sign).decode().rstrip('=')}"

    return token


def _resigned(scene: Scene) -> str:
    head, _, sign = scene.tokens["run"].split(".")
    return f"{head}.{_forged('RS256')(scene).split('.')[1]}.{sign}"


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


_SUB = "system:serviceaccount:{bob}:lead-run"
_OWN_RUN, _OWN_BUILD = "runs/{alice}/{mine}/", "builds/{alice}/{my_cache}/"
# What alice's own accounts may do: without these, refusals would show nothing.
OWN = (
    StoreAttempt("the run role lists its namespace's runs", listing("run", "runs/{alice}/"), "^200 .*<Key>runs/"),
    StoreAttempt("the run role writes its run's folder", s3("run", "PUT", f"{_OWN_RUN}note", body=b"1"), "^200 "),
    StoreAttempt("the build role lists its raw data", listing("build", "datasets/{alice}/"), "^200 .*<Key>datasets/"),
    StoreAttempt("the data key reads its namespace's runs", listing("data", "runs/{alice}/"), "^200 .*<Key>runs/"),
    StoreAttempt("the data key writes raw data", s3("data", "PUT", "datasets/{alice}/note", body=b"1"), "^200 "),
)
ATTEMPTS = (
    *(StoreAttempt(f"the run role reads bob's {root}", s3("run", "GET", f"{{{root}}}")) for root in ROOTS),
    *(StoreAttempt(f"the build role reads bob's {root}", s3("build", "GET", f"{{{root}}}")) for root in ROOTS),
    *(StoreAttempt(f"the data key reads bob's {root}", s3("data", "GET", f"{{{root}}}")) for root in ROOTS),
    *(StoreAttempt(f"the account default reads bob's {root}", s3("default", "GET", f"{{{root}}}"), "^40[03] ")
      for root in ("datasets", "runs")),
    *(StoreAttempt(f"the run role writes over bob's {root}",
                   s3("run", "PUT", f"{{{root}}}", body=b"x")) for root in ROOTS),
    *(StoreAttempt(f"the build role writes over bob's {root}", s3("build", "PUT", f"{{{root}}}", body=b"x"))
      for root in ("datasets", "caches", "builds")),
    *(StoreAttempt(f"the data key deletes bob's {root}",
                   s3("data", "DELETE", f"{{{root}}}")) for root in ("datasets", "runs")),
    StoreAttempt("the run role asks whether bob's checkpoint exists", s3("run", "HEAD", "{runs}"), "^403 "),
    StoreAttempt("the run role lists bob's runs", listing("run", "runs/{bob}/")),
    StoreAttempt("the run role lists the names of namespaces", listing("run", "runs/", ("delimiter", "/"))),
    StoreAttempt("the run role lists the bucket", listing("run", "")),
    StoreAttempt("a header Prefix lists bob's runs",
                 listing("run", "runs/{bob}/", headers={"Prefix": "runs/{alice}/"})),
    StoreAttempt("a second prefix lists bob's runs", listing("run", "runs/{bob}/", ("prefix", "runs/{alice}/"))),
    StoreAttempt("a parameter Prefix lists bob's runs", listing("run", "runs/{bob}/", ("Prefix", "runs/{alice}/"))),
    StoreAttempt("the older listing with a header lists bob's raw data",
                 s3("build", "GET", "", [("prefix", "datasets/{bob}/")], headers={"Prefix": "datasets/{alice}/"})),
    StoreAttempt("the run role lists versions of bob's run",
                 s3("run", "GET", "", [("versions", ""), ("prefix", "runs/{bob}/")])),
    StoreAttempt("the data key lists versions by a forged header",
                 s3("data", "GET", "", [("versions", ""), ("prefix", "runs/{bob}/")],
                    headers={"Prefix": "runs/{alice}/"})),
    StoreAttempt("the run role lists unfinished uploads", s3("run", "GET", "", [("uploads", "")])),
    StoreAttempt("the run role listens to what is uploaded",
                 s3("run", "GET", "", [("events", "s3:ObjectCreated:*"), ("prefix", ""), ("suffix", "")])),
    StoreAttempt("a header Sub says that alice is bob", s3("run", "GET", "{runs}", headers={"Sub": _SUB})),
    StoreAttempt("a parameter sub says that alice is bob", s3("run", "GET", "{runs}", [("sub", _SUB)])),
    StoreAttempt("a header Username says that alice is the operator",
                 s3("run", "GET", "{runs}", headers={"Username": "lead-operator-default"})),
    StoreAttempt("a path with .. leads to bob's run",
                 s3("run", "GET", f"{_OWN_RUN}../../../{{runs}}"), "^4(00|03|04) "),
    StoreAttempt("the run role begins an upload to bob's run", s3("run", "POST", "runs/{bob}/u/k", [("uploads", "")])),
    StoreAttempt("the run role copies bob's checkpoint to itself",
                 s3("run", "PUT", f"{_OWN_RUN}stolen", headers={"x-amz-copy-source": "/{bucket}/{runs}"})),
    StoreAttempt("the run role copies over bob's checkpoint",
                 s3("run", "PUT", "{runs}", headers={"x-amz-copy-source": f"/{{bucket}}/{_OWN_RUN}note"})),
    StoreAttempt("the build role copies bob's raw data to itself",
                 s3("build", "PUT", f"{_OWN_BUILD}stolen", headers={"x-amz-copy-source": "/{bucket}/{datasets}"})),
    StoreAttempt("a part of an upload is copied of bob's checkpoint", part_of),
    StoreAttempt("a browser's form uploads to bob's run", posted_form, NOT_OFFERED),
    StoreAttempt("the run role deletes bob's checkpoint", s3("run", "DELETE", "{runs}")),
    StoreAttempt("the run role deletes many of bob's objects", delete_many,
                 "^200 AccessDenied ((?!<Deleted>).)*$"),
    StoreAttempt("the run role deletes a version of bob's checkpoint",
                 s3("run", "DELETE", "{runs}", [("versionId", "null")])),
    StoreAttempt("a link that the run role signs shows bob's checkpoint", presigned("run", "runs")),
    StoreAttempt("a link that the data key signs shows bob's raw data", presigned("data", "datasets")),
    StoreAttempt("the run role queries bob's raw data by SQL",
                 s3("run", "POST", "{datasets}", [("select", ""), ("select-type", "2")],
                    body=b"<SelectObjectContentRequest/>"), NOT_OFFERED),
    StoreAttempt("the run role tags bob's checkpoint",
                 s3("run", "PUT", "{runs}", [("tagging", "")], body=b"<Tagging><TagSet/></Tagging>")),
    StoreAttempt("the run role reads the attributes of bob's checkpoint",
                 s3("run", "GET", "{runs}", [("attributes", "")], headers={"x-amz-object-attributes": "ETag"})),
    StoreAttempt("the run role opens the bucket to everybody", s3("run", "PUT", "", [("policy", "")], body=b"{}")),
    StoreAttempt("the run role reads the bucket's policy", s3("run", "GET", "", [("policy", "")])),
    StoreAttempt("the run role ends the bucket's versions", s3("run", "PUT", "", [("versioning", "")], body=b"<x/>")),
    StoreAttempt("the run role lets the bucket expire", s3("run", "PUT", "", [("lifecycle", "")], body=b"<x/>")),
    StoreAttempt("the data key deletes the bucket", s3("data", "DELETE", "")),
    StoreAttempt("the run role makes a bucket",
                 lambda scene, keys: scene.s3.signed(keys.of("run"), "PUT", "alices-own")),
    *(StoreAttempt(f"the {who} key reads the bucket of a profile that is bob's alone",
                   of_the_private_bucket(who))
      for who in ("run", "build", "data")),
    StoreAttempt("the run role writes the operator's record of its own run",
                 s3("run", "PUT", "control/{alice}/{mine}/ended.json", body=b"{}")),
    StoreAttempt("the run role writes a cache of its own namespace",
                 s3("run", "PUT", "caches/{alice}/{my_digest}/MANIFEST.json", body=b"{}")),
    StoreAttempt("the build role publishes a cache of its own",
                 s3("build", "PUT", "caches/{alice}/{my_digest}/MANIFEST.json", body=b"{}")),
    StoreAttempt("the run role writes what a build has made", s3("run", "PUT", f"{_OWN_BUILD}1.json", body=b"{}")),
    StoreAttempt("the build role writes into a run of its own namespace",
                 s3("build", "PUT", f"{_OWN_RUN}note", body=b"x")),
    StoreAttempt("the run role deletes what its own run wrote", s3("run", "DELETE", f"{_OWN_RUN}note")),
    StoreAttempt("the build role deletes its own raw data", s3("build", "DELETE", "datasets/{alice}/note")),
    StoreAttempt("the data key writes a cache",
                 s3("data", "PUT", "caches/{alice}/{my_digest}/MANIFEST.json", body=b"{}")),
    StoreAttempt("the data key deletes checkpoints", s3("data", "DELETE", f"{_OWN_RUN}note")),
    StoreAttempt("nobody's key reads bob's checkpoint", s3("nobody", "GET", "{runs}"), "^403 InvalidAccessKeyId"),
    StoreAttempt("a request without a key reads bob's checkpoint", bare("GET", "{store}|/{bucket}/{runs}")),
    StoreAttempt("a token of the API server is shown to STS", exchange(lambda scene: scene.tokens["api"]), BAD_TOKEN),
    StoreAttempt("a token in bob's name without a signature", exchange(_forged("none")), BAD_TOKEN),
    StoreAttempt("a token in bob's name, signed by an empty secret", exchange(_forged("HS256")), BAD_TOKEN),
    StoreAttempt("a token in bob's name, signed by its audience", exchange(_forged("HS256", b"lead-store")), BAD_TOKEN),
    StoreAttempt("a token in bob's name under alice's signature", exchange(_resigned), BAD_TOKEN),
    StoreAttempt("another role is asked for", lambda scene, keys: scene.s3.exchange(
        scene.tokens["run"], "arn:minio:iam:::role/of-the-operator")[0], "^4.. "),
    StoreAttempt("a session policy wider than the role reads bob's checkpoint", with_wider_policy),
    StoreAttempt("credentials of a week are asked for", _hour_at_most, "credentials end in an hour"),
    *(StoreAttempt(f"the {who} key {what}", admin(who, method, path, query), "^403 ")
      for who in ("run", "data")
      for what, method, path, query in (
          ("lists users", "GET", "list-users", ()),
          ("lists the operator's further keys", "GET", "list-service-accounts", (("user", "lead-operator-default"),)),
          ("reads the server's configuration", "GET", "config", ()),
          ("reads the server's state", "GET", "info", ()),
          ("gives itself another policy", "PUT", "set-user-or-group-policy",
           (("policyName", "consoleAdmin"), ("userOrGroup", "alice"), ("isGroup", "false"))),
          ("restarts the server", "POST", "service", (("action", "restart"),)))),
    StoreAttempt("the store's metrics are read", bare("GET", "{store}|/minio/v2/metrics/cluster"), "^403 "),
    StoreAttempt("the relay of tokens' keys is asked from outside",
                 bare("GET", "http://{store_pod}:9010|/openid/v1/jwks"), NOBODY),
    StoreAttempt("the relay's own page shows its token", bare("GET", "http://{store_pod}:9011|/token"), "^(404|0) "),
    StoreAttempt("the operator's metrics are read without a token",
                 bare("GET", "https://{operator_pod}:8443|/metrics"), "^(401|403|0) "),
    StoreAttempt("the operator's metrics are read with a pod's token",
                 bare("GET", "https://{operator_pod}:8443|/metrics", token="api"), "^(401|403|0) "),
    StoreAttempt("kubelet's port shows the metrics",
                 bare("GET", "http://{operator_pod}:8080|/metrics"), "^(401|403|404|0) "),
    *(StoreAttempt(f"a pod's token {what} at the API server", bare(method, "{api}|" + path, token="api"), FORBIDDEN)
      for what, method, path in (
          ("lists its namespace's Secrets", "GET", "/api/v1/namespaces/{alice}/secrets"),
          ("lists bob's Secrets", "GET", "/api/v1/namespaces/{bob}/secrets"),
          ("reads the store's root key", "GET", "/api/v1/namespaces/{release}/secrets/lead-minio-credentials"),
          ("lists runs of all", "GET", "/apis/lead.dev/v1alpha1/trainingruns"),
          ("deletes the operator's lease", "DELETE",
           "/apis/coordination.k8s.io/v1/namespaces/{release}/leases/lead-operator"),
          ("lists pods of its own namespace", "GET", "/api/v1/namespaces/{alice}/pods"))),
    StoreAttempt("the store's token is shown to the API server",
                 bare("GET", "{api}|/api/v1/namespaces/{alice}/pods", token="run"), "^401 "),
)  # fmt: skip


def _filled(text: str, scene: Scene) -> str:
    for name, value in {**asdict(scene), **scene.theirs}.items():
        if isinstance(value, str):
            text = text.replace(f"{{{name}}}", value)
    return text


def forge_own_records(scene: Scene, keys: Keys) -> list[Answer]:
    """Writes into alice's own run and build all that could mislead the operator; her role may write there."""
    instance, huge, sha = f"{_OWN_RUN}pretrain-s0/", 10**30, "5" * 64
    manifest: dict[str, Any] = {
        "run_uid": scene.mine, "stage": "pretrain", "seed": 0, "attempt": 1, "nonce": "f", "step": 10**9,
        "epoch": 10**6, "step_in_epoch": 0, "parent_sha256": None, "recipe": "lead", "config_sha256": sha,
        "dataset_digests": [], "world_size": 1, "torch_version": "2", "parameters_sha256": sha, "saved_at": "",
        "final": True, "files": {},
    }  # fmt: skip
    files = {"model.pth": {"key": scene.theirs["runs"], "size": huge, "sha256": sha}}
    progress = {"attempt": 1, "seq": huge, "phase": "Done", "epoch": 1, "epochs": 1, "step": huge, "steps": huge}
    end = {"phase": "Succeeded", "reason": "Forged", "message": "forged", "ended_at": "2026-01-01T00:00:00Z"}
    forged: dict[str, Any] = {
        f"{_OWN_RUN}ended.json": end, f"{_OWN_RUN}restarts/ended.json": end,
        f"{instance}progress/{10**12}.json": progress,
        f"{instance}manifest/{10**9:012d}.0.json": manifest,
        f"{instance}manifest/{10**9 + 1:012d}.0.json": manifest | {"step": 10**9 + 1, "files": files},
    }  # fmt: skip
    answers = [
        s3("run", "PUT", key, body=json.dumps(document).encode())(scene, keys) for key, document in forged.items()
    ]
    staged = f"{_OWN_BUILD}staged/{scene.my_digest}/MANIFEST.json"
    for key in (staged, f"{_OWN_BUILD}1.json"):
        answers.append(s3("build", "PUT", key, body=b'{"digest": "' + scene.my_digest.encode() + b'"}')(scene, keys))
    return answers


def main(path: str) -> None:
    """Tries everything and prints a line an attempt; the last line is of the forged records."""
    scene = Scene(**json.loads(Path(path).read_text()))
    keys = Keys(scene)
    for attempt in (*OWN, *ATTEMPTS):
        answer = attempt.does(scene, keys)
        text = " ".join(answer.body.split())
        print(json.dumps({"name": attempt.name, "seen": f"{answer.status} {answer.code} {text}"[:3000]}), flush=True)
    written = [answer.status for answer in forge_own_records(scene, keys)]
    print(json.dumps({"name": "forged", "seen": " ".join(str(status) for status in written)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
