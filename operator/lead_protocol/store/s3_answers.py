"""What an S3 server's answers mean: error bodies to StoreError classes, list pages to ObjectInfo; pure.

Only these facts of the protocol are used, so that any plain-S3 server will do: status codes, `<Code>` of error bodies,
request ids and ETags, ListObjectsV2 and multipart XML.

Where the store is away for a moment, something else may answer in its place: a gateway, an ingress without a route, a
captive portal. Only a response with S3's headers is evidence about objects; every other one means that the
store was not reached.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from urllib.parse import unquote_plus
from xml.etree import ElementTree

from lead_protocol.exit_codes import SET_CLOCKS
from lead_protocol.store.object_store import (
    ObjectCorrupt,
    ObjectInfo,
    ObjectNotFound,
    ObjectReplaced,
    StoreDenied,
    StoreError,
    StoreFull,
    StoreSkew,
    StoreUnavailable,
)

_TRY_AGAIN_STATUS = {408, 425, 429, 499, 500, 502, 503, 504, *range(520, 528)}  # 499: MinIO itself was stopped
# What S3 servers send with every answer, or with the failure of a HEAD, which has no body.
_S3_HEADERS = ("x-amz-request-id", "x-amz-id-2", "x-minio-error-code")
_NOTHING_HAPPENED = {429, 503}  # the server did not even try
# Damaged or interrupted in transit, or in conflict with another writer: the same request may succeed.
_TRY_AGAIN_CODES = {
    "RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch", "InvalidDigest", "SlowDown",
    "OperationAborted", "ConditionalRequestConflict", "InternalError", "ClientDisconnected",
}  # fmt: skip
_FULL_CODES = {"XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "QuotaExceeded", "InsufficientStorage"}
_KEY_CODES = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"}
_SKEW_CODES = {"RequestTimeTooSkewed", "RequestExpired"}
# Of the parser: no XML, other bytes than its encoding's, an encoding that is unknown or that it does not read.
NOT_XML = (ElementTree.ParseError, LookupError, ValueError)
_ENCRYPTED = "server side encryption"  # of an object whose reader has to send its key (SSE-C)
CHECK_CREDENTIALS = "check the storage profile's credentials and what they allow"
_NOT_THE_STORE = "a gateway may have answered in the store's place: check the endpoint and what lies before it"
_MOST_SKEW = timedelta(minutes=15)  # what S3 servers allow


class TryAgain(Exception):
    """One try failed in a way that may pass; `uncertain` when the server may have executed the request."""

    def __init__(self, reason: str, *, uncertain: bool, pause_s: float = 0.0) -> None:
        super().__init__(reason)
        self.uncertain = uncertain
        self.pause_s = pause_s  # the server's Retry-After


class UploadGone(Exception):
    """The server knows this multipart upload no more: it was committed, or dropped; start another."""


@dataclass(frozen=True)
class ListPage:
    """One page of a LIST; keys include the store's prefix."""

    objects: list[ObjectInfo]
    truncated: bool


@dataclass(frozen=True)
class Version:
    """One version of a key, or one mark that it was deleted."""

    key: str  # with the store's prefix
    id: str


def explain_failure(
    status: int, headers: Mapping[str, str], body: bytes, *, where: str, signed_at: datetime | None = None
) -> Exception:
    """Returns the StoreError, TryAgain or UploadGone that a failed answer means; `where` names method and object.

    A HEAD has no body to name a wrong clock, so its `Date` is compared with when the request was signed.
    An answer that is not S3's is never about the object: TryAgain, but where a person must act in any case (redirects,
    401, 403, 507).
    """
    ahead = _ahead(headers, signed_at)
    code, detail = _error_code(headers, body)
    answer = f"{where}: the store answered {status} {code}".rstrip() + (f" ({detail})" if detail else "")
    if 300 <= status < 400:
        return StoreDenied(f"{answer}, a redirect, which is refused; set the profile's final endpoint and region")
    if code == "NoSuchUpload":
        return UploadGone(answer)
    if code in _SKEW_CODES or (status == 403 and not code and abs(ahead) > _MOST_SKEW):
        return StoreSkew(f"{answer}; {SET_CLOCKS}{_by(ahead)}")
    if code in _FULL_CODES or status == 507:
        return StoreFull(f"{answer}; free or add space in the store")
    if status in _TRY_AGAIN_STATUS or code in _TRY_AGAIN_CODES:
        return TryAgain(answer, uncertain=status not in _NOTHING_HAPPENED, pause_s=_retry_after_s(headers))
    if not code and not _bears_s3_headers(headers) and status not in (401, 403):
        return TryAgain(f"{answer}, which is no answer of S3; {_NOT_THE_STORE}", uncertain=True)
    if code == "NoSuchBucket":
        return StoreUnavailable(f"{answer}; create the bucket, or correct the storage profile's bucket or addressing")
    if status == 404:
        return ObjectNotFound(f"{answer}; the object does not exist")
    if status in (401, 403) or code in _KEY_CODES:  # AWS refuses an expired token with 400
        of_key = True if status == 401 or code in _KEY_CODES else False if code else None  # a HEAD may name no code
        return StoreDenied(f"{answer}; {CHECK_CREDENTIALS}", of_key=of_key)
    if status == 412:
        return ObjectReplaced(f"{answer}: another version lies there than the one that was asked for")
    if code == "InvalidRequest" and _ENCRYPTED in detail.lower():
        return ObjectCorrupt(f"{answer}: whoever wrote the object encrypted it with a key that nobody else has")
    if status == 416:
        return ObjectCorrupt(f"{answer}: the object is shorter than expected; it was truncated or replaced")
    return StoreError(f"{answer}; the server does not implement S3 as expected: check the storage profile's endpoint")


def check_success(method: str, headers: Mapping[str, str], *, where: str) -> None:
    """Raises TryAgain where a good answer about one object is not S3's, such as a gateway's page."""
    if _bears_s3_headers(headers):
        return
    if _media_type(headers) != "text/html" and (headers.get("ETag") or method == "DELETE"):
        return
    raise TryAgain(f"{where}: a good answer without the marks of S3; {_NOT_THE_STORE}", uncertain=True)


def parse_list_page(body: bytes, *, where: str) -> ListPage:
    """Parses a ListObjectsV2 answer with `encoding-type=url`; raises TryAgain where it is something else."""
    root = _parse(body, where)
    if _name(root) != "ListBucketResult":
        raise TryAgain(
            f"{where}: expected ListBucketResult, found {_name(root)[:80]}; {_NOT_THE_STORE}", uncertain=False
        )
    url_encoded = _text(root, "EncodingType") == "url"
    objects = []
    for element in root:
        if _name(element) == "Contents":
            key = _text(element, "Key")
            size, etag = _size(element, where), _text(element, "ETag").strip('"')
            objects.append(ObjectInfo(unquote_plus(key) if url_encoded else key, size, etag))
    truncated = _text(root, "IsTruncated") == "true"
    if truncated and not objects:
        raise StoreUnavailable(f"{where}: a truncated page without objects; the listing cannot go on")
    return ListPage(objects, truncated)


def parse_versions(body: bytes, *, where: str) -> list[Version]:
    """Parses a ListObjectVersions answer with `encoding-type=url`, newest first of each key."""
    root = _parse(body, where)
    if _name(root) != "ListVersionsResult":
        raise StoreUnavailable(f"{where}: expected ListVersionsResult, found {_name(root)}; check the endpoint")
    url_encoded = _text(root, "EncodingType") == "url"
    found = []
    for element in root:
        if _name(element) in ("Version", "DeleteMarker"):
            key = _text(element, "Key")
            found.append(Version(unquote_plus(key) if url_encoded else key, _text(element, "VersionId")))
    return found


def parse_upload_id(body: bytes, *, where: str) -> str:
    """Returns the UploadId of an InitiateMultipartUpload answer; raises TryAgain where there is none."""
    found = _text(_parse(body, where), "UploadId")
    if not found:
        raise TryAgain(f"{where}: the answer names no UploadId; {_NOT_THE_STORE}", uncertain=True)
    return found


def check_completion(body: bytes, *, where: str) -> None:
    """Raises the error that CompleteMultipartUpload may hide in a 200 answer."""
    if _name(_parse(body, where)) != "CompleteMultipartUploadResult":
        raise explain_failure(500, {}, body, where=where)


def check_copy(body: bytes, *, where: str) -> None:
    """Raises the error that CopyObject may hide in a 200 answer."""
    if _name(_parse(body, where)) != "CopyObjectResult":
        raise explain_failure(500, {}, body, where=where)


def whole_sha256(headers: Mapping[str, str]) -> str:
    """Returns the SHA-256 of the whole object in a HEAD as hex digits; "" where it has none, or one of parts."""
    checksum = headers.get("x-amz-checksum-sha256", "")
    try:
        digest = base64.b64decode(checksum, validate=True)
    except ValueError:  # "<base64>-<n>" is a checksum of the checksums of n parts
        return ""
    return digest.hex() if len(digest) == 32 else ""


def completion_body(etags: Sequence[str]) -> bytes:
    """Builds the body of CompleteMultipartUpload from the parts' ETags in order."""
    root = ElementTree.Element("CompleteMultipartUpload", xmlns="http://s3.amazonaws.com/doc/2006-03-01/")
    for number, etag in enumerate(etags, start=1):
        part = ElementTree.SubElement(root, "Part")
        ElementTree.SubElement(part, "PartNumber").text = str(number)
        ElementTree.SubElement(part, "ETag").text = etag
    return ElementTree.tostring(root)


def _error_code(headers: Mapping[str, str], body: bytes) -> tuple[str, str]:
    try:
        root = ElementTree.fromstring(body)
        return _text(root, "Code")[:80], _text(root, "Message")[:200]
    except NOT_XML:
        return headers.get("x-minio-error-code", "")[:80], ""  # HEAD has no body; a proxy's page is not XML


def _bears_s3_headers(headers: Mapping[str, str]) -> bool:
    present = {name.lower() for name in headers}
    # For a HEAD some servers return only that the body would have been XML.
    return any(name in present for name in _S3_HEADERS) or _media_type(headers) == "application/xml"


def _media_type(headers: Mapping[str, str]) -> str:
    return headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _ahead(headers: Mapping[str, str], signed_at: datetime | None) -> timedelta:
    """Returns how far this machine's clock is ahead of the store's, as far as the response shows it."""
    try:
        server_time = parsedate_to_datetime(headers.get("Date", ""))
        return timedelta() if signed_at is None else signed_at - server_time
    except (TypeError, ValueError):  # no date, or one without a zone
        return timedelta()


def _by(ahead: timedelta) -> str:
    minutes = round(abs(ahead) / timedelta(minutes=1))
    return f": this one is {minutes} min {'ahead' if ahead > timedelta() else 'behind'}" if minutes else ""


def _retry_after_s(headers: Mapping[str, str]) -> float:
    try:
        return max(0.0, float(headers.get("Retry-After", "0")))
    except ValueError:
        return 1.0  # a date: the clocks may differ, so only its wish to wait is honoured


def _parse(body: bytes, where: str) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(body)
    except NOT_XML as error:
        raise TryAgain(f"{where}: the answer is not whole XML ({error})", uncertain=True) from error


def _size(element: ElementTree.Element, where: str) -> int:
    found = _text(element, "Size") or "0"
    try:
        return int(found)
    except ValueError as error:
        raise StoreUnavailable(f"{where}: Size: found {found[:80]!r}, expected a number; check the endpoint") from error


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _text(element: ElementTree.Element, name: str) -> str:
    for child in element:
        if _name(child) == name:
            return child.text or ""
    return ""
