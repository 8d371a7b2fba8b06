"""What each answer of an S3 server means; servers and proxies say the same thing in many ways."""

import pytest

from lead_protocol.store.object_store import (
    ObjectCorrupt,
    ObjectNotFound,
    StoreDenied,
    StoreError,
    StoreFull,
    StoreSkew,
    StoreUnavailable,
)
from lead_protocol.store.s3_answers import (
    TryAgain,
    UploadGone,
    check_completion,
    check_success,
    completion_body,
    explain_failure,
    parse_list_page,
    parse_upload_id,
)

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"


def error(code: str) -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>why</Message></Error>".encode()


@pytest.mark.parametrize(
    "status, body, meaning",
    [
        (403, error("AccessDenied"), StoreDenied),
        (403, error("InvalidAccessKeyId"), StoreDenied),
        (401, b"", StoreDenied),
        (403, error("RequestTimeTooSkewed"), StoreSkew),
        (507, error("XMinioStorageFull"), StoreFull),
        (507, b"", StoreFull),
        (400, error("XMinioAdminBucketQuotaExceeded"), StoreFull),
        (404, error("NoSuchKey"), ObjectNotFound),
        (404, error("NoSuchBucket"), StoreUnavailable),
        (404, error("NoSuchUpload"), UploadGone),
        (416, error("InvalidRange"), ObjectCorrupt),
        (301, error("PermanentRedirect"), StoreDenied),
        (307, b"", StoreDenied),
        (400, error("InvalidArgument"), StoreError),
        (405, error("MethodNotAllowed"), StoreError),
    ],
)
def test_a_final_failure_has_one_class_and_names_what_failed(
    status: int, body: bytes, meaning: type[Exception]
) -> None:
    failure = explain_failure(status, {}, body, where="GET s3://lead/k at store:9000")
    assert type(failure) is meaning
    assert "GET s3://lead/k at store:9000" in str(failure) and str(status) in str(failure)


@pytest.mark.parametrize(
    "status, body, uncertain",
    [
        (503, error("SlowDown"), False),
        (503, b"", False),
        (429, b"", False),
        (500, error("InternalError"), True),
        (502, b"<html>bad gateway</html>", True),
        (504, b"", True),
        (408, b"", True),
        (409, error("ConditionalRequestConflict"), True),
        (400, error("BadDigest"), True),
        (400, error("IncompleteBody"), True),
        (499, error("ClientDisconnected"), True),
        (499, b"", True),
        (520, b"", True),
        (527, b"<html>railgun</html>", True),
        (404, b"", True),
        (404, b"404 page not found\n", True),
        (404, b"<html><head><title>404 Not Found</title></head></html>", True),
        (404, b"<html><head>cut off", True),
        (400, b"", True),
        (405, b"<html>not a store</html>", True),
        (410, b"", True),
        (412, b"", True),
        (416, b"", True),
    ],
)
def test_a_passing_failure_says_whether_the_write_may_have_landed(status: int, body: bytes, uncertain: bool) -> None:
    failure = explain_failure(status, {}, body, where="PUT k")
    assert isinstance(failure, TryAgain)
    assert failure.uncertain is uncertain


@pytest.mark.parametrize("told, pause_s", [("7", 7.0), ("-3", 0.0), ("Wed, 21 Oct 2026 07:28:00 GMT", 1.0), ("", 1.0)])
def test_retry_after_is_read_as_seconds(told: str, pause_s: float) -> None:
    failure = explain_failure(503, {"Retry-After": told}, b"", where="GET k")
    assert isinstance(failure, TryAgain) and failure.pause_s == pause_s


def test_the_code_of_a_head_comes_from_its_header() -> None:
    failure = explain_failure(404, {"x-minio-error-code": "NoSuchBucket"}, b"", where="HEAD k")
    assert type(failure) is StoreUnavailable


@pytest.mark.parametrize(
    "headers",
    [{"X-Amz-Request-Id": "1F"}, {"x-amz-id-2": "a"}, {"x-minio-error-code": "NoSuchKey"},
     {"Content-Type": "application/xml"}],
)  # fmt: skip
def test_a_head_that_s3_answers_is_believed_by_its_headers(headers: dict[str, str]) -> None:
    assert type(explain_failure(404, headers, b"", where="HEAD k")) is ObjectNotFound


@pytest.mark.parametrize(
    "headers", [{}, {"Content-Length": "0"}, {"Server": "nginx"}, {"x-amz-cf-id": "cloud"}, {"x-amz-apigw-id": "gate"}]
)
def test_a_missing_object_is_believed_of_s3_alone(headers: dict[str, str]) -> None:
    failure = explain_failure(404, headers, b"", where="HEAD k")
    assert isinstance(failure, TryAgain) and "a gateway may have answered in the store's place" in str(failure)


@pytest.mark.parametrize(
    "method, headers, believed",
    [
        ("PUT", {"x-amz-request-id": "1F"}, True),
        ("PUT", {"ETag": '"abc"'}, True),
        ("PUT", {"Content-Length": "0"}, False),
        ("GET", {"ETag": '"abc"', "Content-Type": "binary/octet-stream"}, True),
        ("GET", {"ETag": '"5f-3a"', "Content-Type": "text/html; charset=utf-8"}, False),
        ("HEAD", {"Content-Length": "612"}, False),
        ("DELETE", {}, True),
        ("DELETE", {"Content-Type": "text/html"}, False),
    ],
)
def test_a_gateways_page_is_no_success(method: str, headers: dict[str, str], believed: bool) -> None:
    if believed:
        check_success(method, headers, where=f"{method} k")
        return
    with pytest.raises(TryAgain, match="without the marks of S3"):
        check_success(method, headers, where=f"{method} k")


def test_a_page_of_another_kind_is_no_listing_and_no_upload() -> None:
    page = b"<html><body>welcome</body></html>"
    with pytest.raises(TryAgain, match="expected ListBucketResult, found html"):
        parse_list_page(page, where="LIST")
    with pytest.raises(TryAgain, match="names no UploadId"):
        parse_upload_id(page, where="POST")


def test_a_list_page_is_read_with_its_odd_keys() -> None:
    body = f"""<ListBucketResult xmlns="{NAMESPACE}"><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>
      <Contents><Key>a+b/%C3%BC%2B</Key><Size>12</Size><ETag>"abc"</ETag></Contents></ListBucketResult>""".encode()
    page = parse_list_page(body, where="LIST")
    assert page.truncated
    assert [(found.key, found.size, found.etag) for found in page.objects] == [("a b/ü+", 12, "abc")]


def test_a_list_that_could_not_go_on_is_refused() -> None:
    body = b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"
    with pytest.raises(StoreUnavailable, match="truncated page"):
        parse_list_page(body, where="LIST")


def test_a_cut_answer_is_asked_for_again() -> None:
    for parse in (parse_list_page, parse_upload_id, check_completion):
        with pytest.raises(TryAgain, match="not whole XML"):
            parse(b"<ListBucketResult><Cont", where="LIST")


def test_an_error_inside_a_successful_completion_is_found() -> None:
    check_completion(f'<CompleteMultipartUploadResult xmlns="{NAMESPACE}"/>'.encode(), where="POST")
    with pytest.raises(TryAgain, match="InternalError"):
        check_completion(error("InternalError"), where="POST")


def test_a_completion_lists_its_parts_in_order() -> None:
    body = completion_body(['"one"', '"two"']).decode()
    assert body.index("<PartNumber>1</PartNumber><ETag>") < body.index("<PartNumber>2</PartNumber><ETag>")
