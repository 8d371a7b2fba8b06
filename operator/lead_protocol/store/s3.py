"""The object store over S3; one instance a process, shared by its threads.

Tested against MinIO, uses plain S3: signed requests, ListObjectsV2, multipart uploads, `If-None-Match: *`.
"""

import contextlib
import hashlib
import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from lead_protocol.store.hedge import Hedge
from lead_protocol.store.in_order import map_in_order
from lead_protocol.store.key_rules import check_key, check_prefix
from lead_protocol.store.object_store import ObjectCorrupt, ObjectInfo, ObjectNotFound, StoreDenied, StoreError
from lead_protocol.store.partial_file import PartialFile, full_disk_named, partial_file
from lead_protocol.store.s3_answers import (
    ListPage,
    TryAgain,
    UploadGone,
    check_completion,
    check_copy,
    completion_body,
    parse_list_page,
    parse_upload_id,
    parse_versions,
    whole_sha256,
)
from lead_protocol.store.s3_requests import Answer, Deadline, Request, SignedRequests
from lead_protocol.store.s3_target import MIB, S3Limits, S3Target

IF_FREE = {"If-None-Match": "*"}
TAKEN = 412
MAX_XML_BYTES = 8 * MIB
MAX_PARTS = 10_000
MAX_VERSIONS = 1000  # in one page of a listing
_log = logging.getLogger(__name__)


class S3Store:
    """An ObjectStore below one prefix of one bucket."""

    def __init__(self, target: S3Target, limits: S3Limits | None = None) -> None:
        self._target = target
        self._limits = limits or S3Limits()
        self._requests = SignedRequests(target, self._limits)
        self._hedge = Hedge()

    @property
    def url(self) -> str:
        """Where the store is, for messages and URIs."""
        return self._target.url

    @property
    def second_bytes(self) -> int:
        """How many bytes this process has asked for a second time, because the first answer was late."""
        return self._hedge.second_bytes

    def get(self, key: str, *, max_bytes: int, etag: str = "") -> bytes:
        """Returns the whole object; raises ObjectNotFound, or ObjectCorrupt when it is larger than `max_bytes`.

        With an `etag`, of that version alone (`If-Match`); raises ObjectReplaced where another lies there.
        """
        condition = {"If-Match": f'"{etag}"'} if etag else {}
        request = Request("GET", self._full(key), headers=condition)
        return self._requests.call(request, self._deadline(), max_bytes=max_bytes).body

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """Returns exactly `length` bytes from `offset`; raises ObjectCorrupt when the object is shorter."""
        if length == 0:
            return b""
        return self._range(self._full(key), offset, length, self._deadline(length))

    def download(self, key: str, path: Path, *, size: int, sha256: str) -> None:
        """Streams an object to `path` (`.part`, fsync, rename); raises ObjectCorrupt unless size and SHA-256 match.

        Raises StoreFull where the disk below `path` has no room for it. Ranges come side by side and are written where
        they belong as they come; what lies in the file is hashed in order behind them, so little of it is in memory.
        """
        full, digest = self._full(key), hashlib.sha256()
        found = self._head(full)
        if found is None:
            raise ObjectNotFound(f"{self.url}/{key} does not exist")
        if found.size != size:
            raise ObjectCorrupt(f"{self.url}/{key} has {found.size} bytes, expected {size}")
        step = self._limits.part_bytes
        ranges = ((offset, min(step, size - offset)) for offset in range(0, size, step))
        deadline = Deadline(self._limits.total_for(size), self._limits.total_s)
        with full_disk_named(path), partial_file(path.parent, path.name) as part:
            part.reserve(size)
            fetched = map_in_order(
                lambda span: self._range_into(part, full, *span, deadline), ranges, parallel=self._limits.parallel
            )
            with closing(fetched):  # no thread writes once the file is closed
                for offset, length in fetched:
                    for piece in part.pieces_at(offset, length):
                        digest.update(piece)
            if digest.hexdigest() != sha256:
                raise ObjectCorrupt(f"{self.url}/{key} has SHA-256 {digest.hexdigest()}, expected {sha256}")
            part.replace(path)

    def head(self, key: str) -> ObjectInfo | None:
        """Returns size and etag, or None when the key does not exist."""
        found = self._head(self._full(key))
        return replace(found, key=key) if found else None

    def attest(self, key: str) -> ObjectInfo | None:
        """Like `head`, with the SHA-256 that the store keeps of the whole object; "" where it keeps none."""
        found = self._head(self._full(key), {"x-amz-checksum-mode": "ENABLED"})
        return replace(found, key=key) if found else None

    def copy(self, source: str, target: str, *, etag: str) -> None:
        """Copies an object of at most 5 GiB inside the store, which computes the SHA-256 of the copy."""
        headers = {
            "x-amz-copy-source": quote(f"/{self._target.bucket}/{self._full(source)}", safe="/-_.~"),
            "x-amz-copy-source-if-match": f'"{etag}"',
            "x-amz-checksum-algorithm": "SHA256",
        }
        request, deadline = Request("PUT", self._full(target), headers=headers), self._deadline()

        def attempt() -> None:
            answer = self._requests.send(request, deadline, max_bytes=MAX_XML_BYTES)
            check_copy(answer.body, where=self._requests.where(request))

        self._requests.retrying(attempt, deadline, self._requests.where(request))

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Yields every object below `prefix` in key order, after `start_after`; each page has a deadline of its own."""
        own = f"{self._target.prefix}/" if self._target.prefix else ""
        query = {"list-type": "2", "encoding-type": "url", "prefix": own + check_prefix(prefix)}
        after = own + start_after if start_after else ""
        while True:
            page = self._page({**query, "start-after": after} if after else query, f"LIST {self.url}/{prefix}")
            for found in page.objects:
                yield ObjectInfo(found.key.removeprefix(own), found.size, found.etag)
            if not page.truncated:
                return
            after = page.objects[-1].key

    def put(self, key: str, data: bytes) -> None:
        """Writes an object, replacing what was there; only for objects with a single writer."""
        request = Request("PUT", self._full(key), body=data)
        self._requests.call(request, self._deadline(len(data)), max_bytes=MAX_XML_BYTES)

    def create(self, key: str, data: bytes) -> bool:
        """Writes an object only if the key is free (`If-None-Match: *`); True when the stored bytes are `data`."""
        full, deadline = self._full(key), self._deadline(len(data))
        request = Request("PUT", full, headers=IF_FREE, body=data, also_expected=(TAKEN,))
        return self._settle(request, deadline, size=len(data), sha256=hashlib.sha256(data).hexdigest())

    def create_file(self, key: str, path: Path, *, sha256: str) -> bool:
        """Like `create` for a file of any size; raises ObjectCorrupt when the file itself is not what was promised."""
        full, size = self._full(key), path.stat().st_size
        at_once = self._limits.part_bytes * self._limits.parallel
        deadline = Deadline(self._limits.total_for(size), self._limits.total_for(at_once))
        if size <= self._limits.part_bytes:
            data = path.read_bytes()
            _check_file(path, hashlib.sha256(data).hexdigest(), sha256)
            request = Request("PUT", full, headers=IF_FREE, body=data, also_expected=(TAKEN,))
            return self._settle(request, deadline, size=size, sha256=sha256)

        def attempt() -> bool:
            known = self._compare(full, size, sha256, deadline)  # uploading what is there could only end in 412
            return self._upload(full, path, size, sha256, deadline) if known is None else known

        return self._requests.retrying(attempt, deadline, f"PUT {self.url}/{key} in parts")

    def delete(self, key: str) -> None:
        """Removes an object; a missing key is fine.

        Where the bucket keeps versions, those are removed too, because a deletion shall free the space: the mark that
        the key was deleted goes last, so that no older version appears again. A key that may not remove versions
        leaves them to the bucket's lifecycle rule.
        """
        full = self._full(key)
        try:
            answer = self._requests.call(Request("DELETE", full), self._deadline(), max_bytes=MAX_XML_BYTES)
        except ObjectNotFound:
            return
        if answer.headers.get("x-amz-delete-marker") == "true":
            self._delete_versions(full, answer.headers.get("x-amz-version-id", "null"))

    def _delete_versions(self, full: str, mark: str) -> None:
        """Removes the versions of a key that are older than a deletion's mark, then the mark."""
        query = {"versions": "", "encoding-type": "url", "prefix": full, "max-keys": str(MAX_VERSIONS)}
        try:
            answer = self._requests.call(Request("GET", query=query), self._deadline(), max_bytes=MAX_XML_BYTES)
            versions = parse_versions(answer.body, where=f"LIST versions of s3://{self._target.bucket}/{full}")
            ids = [version.id for version in versions if version.key == full]
            if mark not in ids:
                return
            older = ids[ids.index(mark) + 1 :]  # what came after the mark is somebody's new object
            whole = len(versions) < MAX_VERSIONS or versions[-1].key != full
            for version in (*older, *((mark,) if whole else ())):
                with contextlib.suppress(ObjectNotFound):
                    removal = Request("DELETE", full, query={"versionId": version})
                    self._requests.call(removal, self._deadline(), max_bytes=MAX_XML_BYTES)
        except StoreDenied as denied:
            _log.info("older versions stay until the bucket's lifecycle rule removes them: %s", denied)

    def _full(self, key: str) -> str:
        check_key(key)
        return check_key(f"{self._target.prefix}/{key}" if self._target.prefix else key)

    def _deadline(self, size_bytes: int = 0) -> Deadline:
        return Deadline(self._limits.total_for(size_bytes))

    def _head(self, full: str, headers: Mapping[str, str] | None = None) -> ObjectInfo | None:
        try:
            answer = self._requests.call(Request("HEAD", full, headers=headers or {}), self._deadline(), max_bytes=0)
        except ObjectNotFound:
            return None
        size, etag = int(answer.headers.get("Content-Length", "0")), answer.headers.get("ETag", "").strip('"')
        return ObjectInfo(full, size, etag, whole_sha256(answer.headers))

    def _page(self, query: dict[str, str], where: str) -> ListPage:
        deadline = self._deadline()

        def attempt() -> ListPage:
            answer = self._requests.send(Request("GET", query=query), deadline, max_bytes=MAX_XML_BYTES)
            return parse_list_page(answer.body, where=where)

        return self._requests.retrying(attempt, deadline, where)

    def _range(self, full: str, offset: int, length: int, deadline: Deadline) -> bytes:
        request = _ranged(full, offset, length)

        def attempt() -> Answer:
            return self._hedge.call(lambda: self._requests.send(request, deadline, max_bytes=length), length)

        answer = self._requests.retrying(attempt, deadline, self._requests.where(request))
        if len(answer.body) != length or not _is_range(answer.headers, offset, length):
            raise self._other_range(full, offset, length, len(answer.body), answer.headers)
        return answer.body

    def _range_into(
        self, part: PartialFile, full: str, offset: int, length: int, deadline: Deadline
    ) -> tuple[int, int]:
        """Writes a range to its place in a file and returns it; a try goes on where the last one was cut off."""
        begin = at = offset
        end = offset + length

        def attempt() -> None:
            nonlocal begin, at
            if at == end:  # only what followed it was damaged
                return
            if at > begin:
                deadline.progress()
            begin = at
            with self._requests.stream(_ranged(full, begin, end - begin), deadline) as (response, chunks):
                if not _is_range(response.headers, begin, end - begin):
                    raise self._other_range(full, begin, end - begin, 0, response.headers)
                for chunk in chunks:
                    if at + len(chunk) > end:
                        raise self._other_range(full, begin, end - begin, at + len(chunk) - begin, response.headers)
                    part.write_at(at, chunk)
                    at += len(chunk)
            if at < end:
                raise self._other_range(full, begin, end - begin, at - begin, response.headers)

        self._requests.retrying(attempt, deadline, self._requests.where(_ranged(full, offset, length)))
        return offset, length

    def _other_range(
        self, full: str, offset: int, length: int, found: int, headers: Mapping[str, str]
    ) -> ObjectCorrupt:
        content_range = headers.get("Content-Range", "no Content-Range")
        return ObjectCorrupt(
            f"s3://{self._target.bucket}/{full}: asked for bytes {offset}-{offset + length - 1}, got {found} bytes "
            f"({content_range}); it was truncated or replaced"
        )

    def _settle(self, request: Request, deadline: Deadline, *, size: int, sha256: str) -> bool:
        """Sends a create-only request until it is certain whose bytes are stored."""
        uncertain = False

        def attempt() -> bool:
            nonlocal uncertain
            if uncertain:  # an earlier try may have succeeded: check before writing again
                verdict = self._compare(request.key, size, sha256, deadline)
                if verdict is not None:
                    return verdict
            try:
                answer = self._requests.send(request, deadline, max_bytes=MAX_XML_BYTES)
                if answer.status == TAKEN:
                    return self._verdict_on_taken(request.key, size, sha256, deadline)
                if request.method == "POST":
                    check_completion(answer.body, where=self._requests.where(request))
                return True
            except TryAgain as failed:
                uncertain = uncertain or failed.uncertain
                raise

        return self._requests.retrying(attempt, deadline, self._requests.where(request))

    def _verdict_on_taken(self, full: str, size: int, sha256: str, deadline: Deadline) -> bool:
        verdict = self._compare(full, size, sha256, deadline)
        if verdict is None:
            raise TryAgain(f"s3://{self._target.bucket}/{full}: taken, then gone", uncertain=False)
        return verdict

    def _compare(self, full: str, size: int, sha256: str, deadline: Deadline) -> bool | None:
        """Returns whether the stored object has that size and SHA-256; None when there is none."""
        digest = hashlib.sha256()
        try:
            with self._requests.stream(Request("GET", full), deadline) as (response, chunks):
                if int(response.headers.get("Content-Length", "-1")) != size:
                    response.close()
                    return False
                for chunk in chunks:
                    digest.update(chunk)
        except ObjectNotFound:
            return None
        return digest.hexdigest() == sha256

    def _upload(self, full: str, path: Path, size: int, sha256: str, deadline: Deadline) -> bool:
        """Uploads a file in parts and commits it create-only; leaves no unfinished upload behind."""
        start = Request("POST", full, query={"uploads": ""})
        answer = self._requests.call(start, deadline, max_bytes=MAX_XML_BYTES)
        upload = {"uploadId": parse_upload_id(answer.body, where=self._requests.where(start))}
        try:
            etags = self._upload_parts(full, path, size, sha256, upload, deadline)
            commit = Request(
                "POST", full, query=upload, headers={**IF_FREE, "Content-Type": "application/xml"},
                body=completion_body(etags), also_expected=(TAKEN,),
            )  # fmt: skip
            return self._settle(commit, deadline, size=size, sha256=sha256)
        except UploadGone as error:
            raise TryAgain(str(error), uncertain=True) from error
        finally:
            self._abort(full, upload)  # also after a commit: the stored bytes may come from another writer's

    def _upload_parts(
        self, full: str, path: Path, size: int, sha256: str, upload: dict[str, str], deadline: Deadline
    ) -> tuple[str, ...]:
        """Uploads every part; returns their ETags in order; raises ObjectCorrupt when the file is not as promised."""
        digest, step = hashlib.sha256(), max(self._limits.part_bytes, -(-size // MAX_PARTS))

        def parts() -> Iterator[Request]:
            with path.open("rb") as file:
                for number in range(1, -(-size // step) + 1):
                    data = file.read(step)
                    digest.update(data)
                    yield Request("PUT", full, query={**upload, "partNumber": str(number)}, body=data)

        def send(request: Request) -> str:
            answer = self._requests.call(request, deadline, max_bytes=MAX_XML_BYTES)
            deadline.progress()
            return str(answer.headers.get("ETag", ""))

        etags = tuple(map_in_order(send, parts(), parallel=self._limits.parallel))
        _check_file(path, digest.hexdigest(), sha256)
        return etags

    def _abort(self, full: str, upload: dict[str, str]) -> None:
        """Drops an upload's parts: one try, because the server also drops unfinished uploads by itself after a day."""
        request = Request("DELETE", full, query=upload, also_expected=(404,))
        try:
            self._requests.send(request, Deadline(self._limits.connect_s), max_bytes=MAX_XML_BYTES)
        except (TryAgain, StoreError) as error:  # what the caller must see is how the upload itself ended
            _log.warning("upload not aborted, the store drops it later: %s", error)


def _check_file(path: Path, found: str, expected: str) -> None:
    if found != expected:
        raise ObjectCorrupt(f"file {path} has SHA-256 {found}, expected {expected}; write it again")


def _ranged(full: str, offset: int, length: int) -> Request:
    return Request("GET", full, headers={"Range": f"bytes={offset}-{offset + length - 1}"})


def _is_range(headers: Mapping[str, str], offset: int, length: int) -> bool:
    return headers.get("Content-Range", "").startswith(f"bytes {offset}-{offset + length - 1}/")
