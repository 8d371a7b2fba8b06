"""Which S3 server, bucket and prefix, with which credentials and limits; made by `open_store`, read by `s3*.py`."""

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from lead_protocol.store.credentials import Credentials, CredentialsProvider, FixedCredentials

MIB = 1024 * 1024


@dataclass(frozen=True)
class S3Target:
    """One prefix of one bucket; `prefix` is empty or has no slash at either end."""

    endpoint: str  # host:port
    bucket: str
    prefix: str
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    secure: bool = True
    region: str = "us-east-1"  # what MinIO and most other servers expect
    addressing: str = "path"  # one of address_rules.ADDRESSINGS
    ca_file: Path | None = None
    # Where credentials come from that may change; None: the pair above stays.
    provider: CredentialsProvider | None = field(default=None, compare=False, repr=False)

    @property
    def origin(self) -> str:
        """Scheme and authority of the server."""
        return f"{self._scheme}://{self.endpoint}"

    @property
    def authority(self) -> str:
        """Host and port of every request on the bucket and its objects."""
        return f"{self.bucket}.{self.endpoint}" if self._by_host else self.endpoint

    def request_url(self, key: str) -> str:
        """Returns the URL, without a query, of an object (`key` with the prefix) or, with no key, of the bucket."""
        path = f"/{key}" if self._by_host else f"/{self.bucket}/{key}".rstrip("/")
        return f"{self._scheme}://{self.authority}{quote(path, safe='/-_.~')}"

    @property
    def credentials(self) -> CredentialsProvider:
        """What requests are signed with."""
        return self.provider or FixedCredentials(Credentials(self.access_key, self.secret_key))

    @property
    def url(self) -> str:
        """Where the objects are, for messages and URIs."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def _by_host(self) -> bool:
        return self.addressing == "virtualHost"

    @property
    def _scheme(self) -> str:
        return "https" if self.secure else "http"


@dataclass(frozen=True)
class S3Limits:
    """How long to wait and how much to move at once."""

    connect_s: float = 5.0
    read_s: float = 30.0  # between two pieces of one answer
    total_s: float = 60.0  # of one call, retries and pauses included
    slowest_bytes_per_s: float = 256 * 1024  # a transfer of n bytes may take n / this longer than `total_s`
    first_pause_s: float = 0.1
    longest_pause_s: float = 5.0
    longest_retry_after_s: float = 10.0  # MinIO asks for 60 s while it starts, and is up after one
    rotation_s: float = 0.0  # how long a key that was good may be refused before that ends a call; beyond `total_s`
    part_bytes: int = 8 * MIB  # of uploads and range downloads; S3 wants at least 5 MiB
    parallel: int = 4  # parts of one transfer in flight

    def total_for(self, size_bytes: int) -> float:
        """Total deadline in seconds of a transfer of that size."""
        return self.total_s + size_bytes / self.slowest_bytes_per_s
