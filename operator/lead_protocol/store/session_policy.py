"""What one job needs of the store, and the session policy that narrows a role's credentials to it; pure.

A session policy only takes away: what the role itself may not do stays forbidden. STS takes 2,048 characters of it, so
it is written short, and lists fewer prefixes than it could where many would not fit.

MinIO reads the key `s3:prefix` from a request's headers first, so within its namespace a session's listing is no
border: whoever sends a header `Prefix` sees names of the namespace's other keys, but not of another namespace's, which
the role's policy withholds. Getting and putting are bound by the resource, which no header changes.
"""

import json
import re
from dataclasses import dataclass

from lead_protocol.store.object_store import StoreError

MAX_CHARS = 2000  # of the 2,048 that AWS and MinIO take; MinIO counts its own spelling of the same policy
MAX_NAME_CHARS = 64
WRITE_ACTIONS = ("s3:PutObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts")
_WILDCARDS = re.compile(r"[*?$]")


class PolicyNotPossible(StoreError):
    """No policy can express what a job needs; the message names the length or the character that is why."""


@dataclass(frozen=True)
class Access:
    """Prefixes below the storage profile's, each with its final slash."""

    name: str  # of the job, for the store's audit log: a-z, 0-9, dash
    reads: tuple[str, ...]  # get and list
    writes: tuple[str, ...]  # put, create-only or not; never delete
    # In place of `reads`, where these are too many for a policy: fewer prefixes that hold them.
    reads_in_short: tuple[str, ...] = ()


def session_policy(access: Access, bucket: str, prefix: str) -> str:
    """Returns the policy document of one job; raises PolicyNotPossible where it is too long or holds a wildcard."""
    length = 0
    for reads in (access.reads, access.reads_in_short or access.reads):
        found = _document(reads, access.writes, bucket, f"{prefix}/" if prefix else "")
        length = len(found)
        if length <= MAX_CHARS:
            return found
    raise PolicyNotPossible(
        f"the session policy of {access.name} has {length} characters, expected at most {MAX_CHARS}; shorten the "
        f"storage profile's prefix, which has {len(prefix)}"
    )


def _document(reads: tuple[str, ...], writes: tuple[str, ...], bucket: str, below: str) -> str:
    for prefix in (*reads, *writes, below):
        if _WILDCARDS.search(prefix):
            raise PolicyNotPossible(f"prefix {prefix!r} holds *, ? or $, which a policy expands; rename the folder")
    objects = f"arn:aws:s3:::{bucket}/{below}"
    statements = [
        {
            "Effect": "Allow",
            "Action": ["s3:ListBucket"],
            "Resource": [f"arn:aws:s3:::{bucket}"],
            "Condition": {"StringLike": {"s3:prefix": [f"{below}{prefix}*" for prefix in reads]}},
        },
        {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": [f"{objects}{prefix}*" for prefix in reads]},
    ]
    if writes:
        resources = [f"{objects}{prefix}*" for prefix in writes]
        statements.append({"Effect": "Allow", "Action": [*WRITE_ACTIONS], "Resource": resources})
    return json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))
