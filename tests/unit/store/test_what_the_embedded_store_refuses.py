"""What our MinIO refuses before upstream's code sees it: requests without a signature, and work without a bound."""

import base64
import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
import urllib3
from minio.credentials import Credentials
from minio.signer import sign_v4_s3

from lead_testing.minio_server import ROOT_PASSWORD, ROOT_USER, MinioServer, minio_program

BUCKET = "driving"
UNSIGNED = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
NOBODYS_SIGNATURE = "0" * 64
BOMB = gzip.compress(b"a" * 1024)
QUERY = (
    b"<SelectObjectContentRequest><Expression>SELECT * FROM S3Object s</Expression><ExpressionType>SQL</ExpressionType>"
    b"<InputSerialization><CompressionType>GZIP</CompressionType><CSV/></InputSerialization>"
    b"<OutputSerialization><CSV/></OutputSerialization></SelectObjectContentRequest>"
)


@pytest.fixture(scope="module")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MinioServer]:
    with MinioServer(minio_program(), tmp_path_factory.mktemp("minio")) as server:
        server.admin().make_bucket(BUCKET)
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
