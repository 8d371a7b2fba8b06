"""What to ask a store's administrator for where it refuses a command that a person typed; pods have the chart's rights.

Called by `cli`.
"""

from collections.abc import Mapping

from lead_protocol import environment
from lead_protocol.object_keys import LOCAL_NAMESPACE
from lead_protocol.store.object_store import StoreDenied
from lead_protocol.store.s3_answers import CHECK_CREDENTIALS

_READ, _BUILD = "Get and List", "Get, List, Put and Delete"
_LOCAL_CACHES = f"caches/{LOCAL_NAMESPACE}/ and builds/{LOCAL_NAMESPACE}/"
# By command: the rights, and below which prefixes of LEAD_STORE_URL.
RIGHTS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("train", "cache", "lr-find", "bench", "evaluate"), (_BUILD, _LOCAL_CACHES)),
    "fsck": (_READ, "the prefix that is checked"),
    "export": (_READ, "runs/<namespace>/"),
    "tensorboard": (_READ, "runs/<namespace>/"),
    "example-data": ("Get and Put", "the prefix that is written"),
}


def refused(command: str, denial: StoreDenied, environ: Mapping[str, str]) -> str:
    """Returns the refusal of a store of S3 as one sentence with what helps; another command's as it is."""
    if command not in RIGHTS or f"; {CHECK_CREDENTIALS}" not in str(denial):
        return str(denial)
    rights, below = RIGHTS[command]
    what = str(denial).replace(f"; {CHECK_CREDENTIALS}", "")
    url = environ.get(environment.STORE_URL, "the store").rstrip("/")
    if denial.of_key:
        ask = f"the store takes no such key: ask its administrator for a new one that may {rights}"
    else:
        ask = f"ask the store's administrator to let this key {rights}"
    away = rights == _BUILD and environ.get(environment.STORE_URL)
    return f"{what}; {ask} objects of {url} below {below}" + (
        f", or unset {environment.STORE_URL} to build the cache beside the data" if away else ""
    )
