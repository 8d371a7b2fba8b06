"""A store's error as a resource's status may show it: keys hold names and UIDs, also of others, and are removed."""

import re

from lead_protocol.store.object_store import StoreError

_KEY = re.compile(r"(s3://[^/\s]+)/\S+")


def explain_store_error(error: StoreError) -> str:
    """Returns kind and message of an error without the keys of objects; the log has the whole of it."""
    return f"{type(error).__name__}: {without_keys(str(error))}"


def without_keys(text: str) -> str:
    """Returns a text in which URLs of objects end after the bucket."""
    return _KEY.sub(r"\1/…", text)
