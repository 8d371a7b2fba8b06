"""What our MinIO refuses before upstream's code sees it: requests without a signature, and work without a bound."""

import base64
import gzip
import hashlib
import io
import re
import tarfile
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
import urllib3
from minio.commonconfig import ENABLED
from minio.credentials import Credentials
from minio.signer import sign_v4_s3
from minio.versioningconfig import VersioningConfig

from lead_testing.minio_server import ROOT_PASSWORD, ROOT_USER, MinioServer, minio_program
from lead_testing.raw_s3 import Key, RawS3

BUCKET = "driving"
UNSIGNED = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
NOBODYS_SIGNATURE = "0" * 64
BOMB = gzip.compress(b"a" * 1024)
QUERY = (
    b"<SelectObjectContentRequest><Expression>SELECT * FROM S3Object s</Expression><ExpressionType>SQL</ExpressionType>"
    b"<InputSerialization><CompressionType>GZIP</CompressionType><CSV/></InputSerialization>"
    b"<OutputSerialization><CSV/></OutputSerialization></SelectObjectContentRequest>"
)
WRITER = Key("writer", "a-writers-secret")
WRITERS_POLICY = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Deny", "Action": ["admin:*"]},
        {"Effect": "Allow", "Action": ["s3:GetObject", "s3:PutObject"], "Resource": [f"arn:aws:s3:::{BUCKET}/own/*"]},
    ],
}
FORM = {"content-type": "application/x-www-form-urlencoded"}
MANY = 30_000


@pytest.fixture(scope="module")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MinioServer]:
    with MinioServer(minio_program(), tmp_path_factory.mktemp("minio")) as server:
        server.admin().make_bucket(BUCKET)
        server.admin().set_bucket_versioning(BUCKET, VersioningConfig(ENABLED))
        server.add_user(WRITER.access, WRITER.secret, WRITERS_POLICY)
        server.admin().put_object(BUCKET, "data.csv.gz", io.BytesIO(BOMB), len(BOMB))
        yield server


def send(
    minio: MinioServer, method: str, path: str, query: str = "", *, headers: dict[str, str], body: bytes
) -> tuple[int, str]:
    """Returns status and text of the answer to a request as it stands."""
    url = f"http://{minio.endpoint}/{path}" + (f"?{query}" if query else "")
    answer = urllib3.request(method, url, headers=headers, body=body, retries=False, timeout=30)
    return answer.status, answer.data.decode(errors="replace")


def signed(
    minio: MinioServer, method: str, path: str, query: str = "", *, body: bytes = b"", digest: str = "", **more: str
) -> tuple[int, str]:
    """Sends a request that is signed in its header by root's own key."""
    now = datetime.now(UTC)
    headers = {"Host": minio.endpoint, "x-amz-date": now.strftime("%Y%m%dT%H%M%SZ"),
               "x-amz-content-sha256": digest or "UNSIGNED-PAYLOAD", **more}  # fmt: skip
    signed_headers = sign_v4_s3(
        method=method, url=urlsplit(f"http://{minio.endpoint}/{path}?{query}"), region="us-east-1", headers=headers,
        credentials=Credentials(ROOT_USER, ROOT_PASSWORD), content_sha256=headers["x-amz-content-sha256"], date=now,
    )  # fmt: skip
    return send(minio, method, path, query, headers=signed_headers, body=body)


def chunked(data: bytes) -> tuple[bytes, dict[str, str]]:
    """Returns data as an unsigned payload with a checksum behind it, and the headers that say so."""
    checksum = base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()
    body = b"%x\r\n%b\r\n0\r\nx-amz-checksum-crc32:%b\r\n\r\n" % (len(data), data, checksum.encode())
    return body, {
        "x-amz-content-sha256": UNSIGNED,
        "x-amz-decoded-content-length": str(len(data)),
        "x-amz-trailer": "x-amz-checksum-crc32",
        "content-encoding": "aws-chunked",
    }


def forged(*, by_query: bool) -> tuple[str, dict[str, str]]:
    """Parameters or header of a request in root's name by somebody who knows no more than that name."""
    now = datetime.now(UTC)
    date, scope = now.strftime("%Y%m%dT%H%M%SZ"), f"{ROOT_USER}/{now:%Y%m%d}/us-east-1/s3/aws4_request"
    if not by_query:
        claim = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host;x-amz-date, Signature={NOBODYS_SIGNATURE}"
        return "", {"authorization": claim, "x-amz-date": date}
    query = {"X-Amz-Algorithm": "AWS4-HMAC-SHA256", "X-Amz-Credential": scope, "X-Amz-Date": date,
             "X-Amz-Expires": "600", "X-Amz-SignedHeaders": "host", "X-Amz-Signature": NOBODYS_SIGNATURE}  # fmt: skip
    return urlencode(query), {"x-amz-date": date}


def keys(minio: MinioServer) -> set[str]:
    return {str(found.object_name) for found in minio.admin().list_objects(BUCKET, recursive=True)}


@pytest.mark.parametrize("by_query", [True, False])
@pytest.mark.parametrize("path", [f"{BUCKET}/forged", f"{BUCKET}/forged?partNumber=1&uploadId=x"])
def test_no_unsigned_payload_is_stored_by_somebodys_name_alone(minio: MinioServer, path: str, by_query: bool) -> None:
    """Upstream checks no signature where the credential stands in the address. Audit: B3"""
    query, claim = forged(by_query=by_query)
    path, _, asked = path.partition("?")
    body, headers = chunked(b"anything")
    status, _ = send(
        minio, "PUT", path, "&".join(filter(None, (asked, query))), headers={**headers, **claim}, body=body
    )
    assert status == 403
    assert keys(minio) == {"data.csv.gz"}


@pytest.mark.parametrize("by_query", [True, False])
def test_no_archive_is_unpacked(minio: MinioServer, by_query: bool) -> None:
    """Of an archive to unpack upstream checks no signature at all, in whichever place it stands. Audit: B3"""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("control/forged.json"), io.BytesIO())
    query, claim = forged(by_query=by_query)
    body, headers = chunked(archive.getvalue())
    unpack = {"x-amz-meta-snowball-auto-extract": "true"}
    status, _ = send(minio, "PUT", f"{BUCKET}/x.tar", query, headers={**headers, **claim, **unpack}, body=body)
    assert status in (403, 501)
    told = signed(minio, "PUT", f"{BUCKET}/x.tar", body=archive.getvalue(), **unpack)
    assert told[0] == 501 and "archives are not unpacked here" in told[1]
    assert keys(minio) == {"data.csv.gz"}


def test_a_request_says_once_who_it_is(minio: MinioServer) -> None:
    """Signed by one key in the header, with the name of another in the address. Audit: B3"""
    other = urlencode({"X-Amz-Credential": f"lead-root/{datetime.now(UTC):%Y%m%d}/us-east-1/s3/aws4_request"})
    status, text = signed(minio, "GET", BUCKET, other)
    assert status == 400 and "says once who it is" in text
    headers = urllib3.HTTPHeaderDict()
    for claim in ("AWS4-HMAC-SHA256 Credential=a", "AWS4-HMAC-SHA256 Credential=b"):
        headers.add("Authorization", claim)
    assert urllib3.request("GET", f"http://{minio.endpoint}/{BUCKET}", headers=headers, retries=False).status == 400


@pytest.mark.parametrize(
    ("method", "query", "headers", "why"),
    [
        ("POST", "select=&select-type=2", {}, "S3 Select is not offered"),
        ("GET", "", {"x-minio-extract": "true"}, "not taken out of archives"),
        ("POST", "", {"content-type": "multipart/form-data; boundary=x"}, "uploads by forms"),
    ],
)
def test_what_nothing_of_ours_needs_is_not_offered(
    minio: MinioServer, method: str, query: str, headers: dict[str, str], why: str
) -> None:
    """Select unpacked 500 MiB of a 2 MB object and the server was killed."""
    status, text = signed(minio, method, f"{BUCKET}/data.csv.gz", query, body=QUERY, **headers)
    assert status == 501 and why in text


def test_signed_uploads_with_a_trailer_go_on(minio: MinioServer) -> None:
    """As the clients of AWS send them by default."""
    body, headers = chunked(b"a route")
    digest = headers.pop("x-amz-content-sha256")
    status, text = signed(minio, "PUT", f"{BUCKET}/uploaded", body=body, digest=digest, **headers)
    assert status == 200, text
    answer: Any = minio.admin().get_object(BUCKET, "uploaded")
    assert answer.read() == b"a route"
    minio.admin().remove_object(BUCKET, "uploaded")


def written(minio: MinioServer, *query: tuple[str, str], **headers: str) -> tuple[int, str]:
    """Sends a write of somebody who may write this object."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    server = RawS3(f"http://{minio.endpoint}")
    answer = server.signed(WRITER, "PUT", f"{BUCKET}/own/manifest", query, body=b"forged", headers=sent)
    return answer.status, answer.body


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_a_writer_replaces_no_version_that_is_kept(minio: MinioServer, method: str) -> None:
    """By its ID upstream writes over a version itself, and nothing is left to restore. Audit: S13"""
    stored = minio.admin().put_object(BUCKET, "own/manifest", io.BytesIO(b"true"), 4)
    version = [("versionId", str(stored.version_id))]
    uploads = [("uploads", "")] if method == "POST" else []
    server = RawS3(f"http://{minio.endpoint}")
    answer = server.signed(WRITER, method, f"{BUCKET}/own/manifest", [*uploads, *version])
    assert answer.status == 501 and "names the version" in answer.body
    copied = {"x-amz-copy-source": f"/{BUCKET}/own/manifest"}
    assert server.signed(WRITER, "PUT", f"{BUCKET}/own/manifest", version, headers=copied).status == 501
    kept: Any = minio.admin().get_object(BUCKET, "own/manifest", version_id=stored.version_id)
    assert kept.read() == b"true"
    minio.admin().remove_object(BUCKET, "own/manifest", version_id=stored.version_id)


def test_a_writer_dates_nothing_and_hides_no_later_write(minio: MinioServer) -> None:
    """Upstream takes the newest by its date, and the date from whoever writes. Audit: S13"""
    status, text = written(minio, x_minio_source_mtime="2099-01-01T00:00:00Z")
    assert status == 501 and "no replicas" in text
    assert written(minio, x_minio_source_etag="0" * 32)[0] == 501
    assert keys(minio) == {"data.csv.gz"}


@pytest.mark.parametrize("by_query", [True, False])
def test_no_object_that_calls_itself_encrypted_spoils_the_listings_of_others(
    minio: MinioServer, by_query: bool
) -> None:
    """Upstream answered every listing that met such an object with an error, to the operator as well. Audit: B3"""
    claims = {
        "x-minio-replication-server-side-encryption-sealed-key": "a",
        "x-minio-replication-server-side-encryption-iv": "b",
        "x-minio-replication-server-side-encryption-seal-algorithm": "DAREv2-HMAC-SHA256",
        "x-minio-replication-actual-object-size": "999999",
    }
    for name, value in claims.items():
        found = written(minio, (name.title(), value)) if by_query else written(minio, **{name: value})
        assert found[0] == 501, name
    assert keys(minio) == {"data.csv.gz"}


def test_the_administration_is_for_the_root_key_alone(minio: MinioServer) -> None:
    """Any key may ask upstream for its own policy; that of pods names every namespace of the release. Audit: B3"""
    server = RawS3(f"http://{minio.endpoint}")
    for path in ("minio/admin/v3/accountinfo", "minio/admin/v3/info", "minio/admin//v3/info", "minio/kms/v1/status"):
        for key in (WRITER, Key(f"{ROOT_USER}x", "unknown"), Key(ROOT_USER, "a guess")):
            answer = server.signed(key, "GET", path)
            assert answer.status in (403, 426), f"{path} {key.access}"  # 426: of no such path
            assert BUCKET not in answer.body
        assert server.send("GET", f"/{path}").status in (403, 426)
    assert server.signed(Key(ROOT_USER, ROOT_PASSWORD), "GET", "minio/admin/v3/accountinfo").status == 200


@pytest.mark.parametrize(
    ("method", "query", "document", "headers"),
    [
        ("POST", "delete=", b"<Delete>" + b"<Object/>" * MANY + b"</Delete>", {}),
        ("POST", "delete=", b"<Delete>" + b"<n:Object a='>'/>" * MANY + b"</Delete>", {}),
        ("PUT", "tagging=", b"<Tagging>" + b"<x/>" * 4 * MANY, {}),
        ("PUT", "acl=", b" " * (5 << 20), {}),
        ("POST", "", b"&".join(b"%x=" % number for number in range(MANY)), FORM),
    ],
)
def test_a_document_of_nobody_is_not_kept_in_memory(
    minio: MinioServer, method: str, query: str, document: bytes, headers: dict[str, str]
) -> None:
    """Upstream parses some before it looks at the signature: 20 MB of keys to delete took 420 MB. Audit: S11"""
    checksum = {"content-md5": base64.b64encode(hashlib.md5(document).digest()).decode()}
    path = f"{BUCKET}/x" if method == "PUT" else BUCKET
    status, text = send(minio, method, path, query, headers={**checksum, **headers}, body=document)
    assert status == 400 and ("holds more than is needed" in text or "larger than any that is needed" in text)
    assert keys(minio) == {"data.csv.gz"}


def test_an_upload_of_very_many_parts_is_refused_before_they_are_kept(minio: MinioServer) -> None:
    """20 MB that name parts, of somebody who may upload, took upstream 4 GB. Audit: S11"""
    server, (uploads,) = RawS3(f"http://{minio.endpoint}"), ([("uploads", "")],)
    begun = server.signed(WRITER, "POST", f"{BUCKET}/own/large", uploads)
    (upload,) = re.findall("<UploadId>([^<]*)", begun.body)
    named = b"<CompleteMultipartUpload>%b</CompleteMultipartUpload>"
    for element in (b"<Part/>", b"<x:Part y='/>'/>"):
        asked = [("uploadId", upload)]
        answer = server.signed(WRITER, "POST", f"{BUCKET}/own/large", asked, body=named % (element * MANY))
        assert answer.status == 400 and "holds more than is needed" in answer.body
    part = server.signed(WRITER, "PUT", f"{BUCKET}/own/large", [("partNumber", "1"), ("uploadId", upload)], body=b"x")
    assert part.status == 200
    etag = b"<Part><PartNumber>1</PartNumber><ETag>%b</ETag></Part>" % hashlib.md5(b"x").hexdigest().encode()
    answer = server.signed(WRITER, "POST", f"{BUCKET}/own/large", [("uploadId", upload)], body=named % etag)
    assert answer.status == 200, answer
    minio.admin().remove_object(BUCKET, "own/large")


def test_a_thousand_keys_are_deleted_in_one_request(minio: MinioServer) -> None:
    """As many as S3 allows, of the longest names."""
    names = "".join(f"<Object><Key>{number:04d}{'&amp;' * 150}</Key></Object>" for number in range(1000)).encode()
    server, document = RawS3(f"http://{minio.endpoint}"), b"<Delete>%b</Delete>" % names
    checksum = {"content-md5": base64.b64encode(hashlib.md5(document).digest()).decode()}
    key = Key(ROOT_USER, ROOT_PASSWORD)
    answer = server.signed(key, "POST", BUCKET, [("delete", "")], body=document, headers=checksum)
    assert answer.status == 200 and answer.body.count("<Deleted>") == 1000


def test_a_token_opens_no_other_way(minio: MinioServer) -> None:
    """Neither LDAP, certificates nor custom tokens are offered, and links of copies lead nowhere. Audit: B3"""
    for action in ("LDAPIdentity", "Certificate", "CustomToken", "ClientGrants", "WebIdentity"):
        form = {"Action": f"AssumeRoleWith{action}", "Version": "2011-06-15", "Token": "x", "WebIdentityToken": "x"}
        status, text = send(minio, "POST", "", headers=FORM, body=urlencode(form).encode())
        assert status in (400, 403, 503) and "AccessKeyId" not in text
    server = RawS3(f"http://{minio.endpoint}")
    sources = ("data.csv.gz", "own/../data.csv.gz", "own/%2e%2e/data.csv.gz", "own/..%2fdata.csv.gz", "/data.csv.gz")
    for source in (*(f"/{BUCKET}/{each}" for each in sources), f"http://elsewhere/{BUCKET}/data.csv.gz",
                   "/.minio.sys/format.json"):  # fmt: skip
        answer = server.signed(WRITER, "PUT", f"{BUCKET}/own/c", headers={"x-amz-copy-source": source})
        assert answer.status in (400, 403), source
    assert keys(minio) == {"data.csv.gz"}
