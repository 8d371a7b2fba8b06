"""Which object keys are safe; called by both stores before a key reaches a path or a URL, changes nothing.

Keys come from manifests and from a user's spec, so they are hostile until they passed here.
"""

import unicodedata

from lead_protocol.store.object_store import StoreError

MAX_KEY_BYTES = 1024  # S3's own limit, prefix included
_FORBIDDEN_CATEGORIES = {"Cc", "Cf", "Cs"}  # control, invisible and direction marks, lone surrogates


class UnsafeKey(StoreError, ValueError):
    """A key that no store accepts; the message names the key and the rule."""


def check_key(key: str) -> str:
    """Returns the key of one object unchanged; raises UnsafeKey naming the broken rule."""
    if not key or key.endswith("/"):
        raise _unsafe(key, "names no object", "end it with a name")
    return check_prefix(key)


def check_prefix(prefix: str) -> str:
    """Returns a prefix (possibly empty, possibly ending in `/`) unchanged; raises UnsafeKey naming the broken rule."""
    if not prefix:
        return prefix
    for character in prefix:
        if character == "\\" or unicodedata.category(character) in _FORBIDDEN_CATEGORIES:
            raise _unsafe(prefix, f"holds the character {character!r}", "use printable characters and `/`")
    if len(prefix.encode()) > MAX_KEY_BYTES:
        raise _unsafe(prefix[:80], f"is longer than {MAX_KEY_BYTES} bytes", "shorten it")
    segments = prefix.removesuffix("/").split("/")
    if "" in segments:
        raise _unsafe(prefix, "starts with `/` or holds `//`", "use single slashes between names")
    if "." in segments or ".." in segments:
        raise _unsafe(prefix, "holds the segment `.` or `..`", "name the object directly")
    return prefix


def _unsafe(key: str, found: str, remedy: str) -> UnsafeKey:
    return UnsafeKey(f"object key {key!r} {found}; {remedy}")
