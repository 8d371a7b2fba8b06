"""The rules for the address of an S3 store, the same for pods, operator and chart.

ENDPOINT and BUCKET are texts of regular expressions for the whole of a value.
"""

import re

ENDPOINT = r"([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(:[0-9]{1,5})?"
BUCKET = r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
ADDRESSINGS = ("path", "virtualHost")  # https://endpoint/bucket/key (the default), or https://bucket.endpoint/key
_IP_ADDRESS = re.compile(r"\[.*\]|[0-9.]+")


def expected_addressing(found: object, *, endpoint: str, bucket: str, secure: bool) -> str:
    """Returns what is expected in the place of `found`, for a message; empty if `found` fits the store's address."""
    if found not in ADDRESSINGS:
        return " or ".join(ADDRESSINGS)
    if found == "path":
        return ""
    host = re.sub(r":[0-9]+$", "", endpoint)
    if _IP_ADDRESS.fullmatch(host):
        return f"path, because the endpoint {endpoint} is an IP address, below which there are no host names"
    if secure and "." in bucket:
        return (
            f"path, because the bucket {bucket} has a dot, and a certificate for *.{host} is none for {bucket}.{host}"
        )
    return ""
