"""A DatasetCache that was submitted: the same calls for a cluster and for this machine."""

from typing import ClassVar

from lead_client.errors import CacheFailed, ConditionError
from lead_client.handle import Handle
from lead_client.objects.dataset_cache_status import DatasetCacheStatus


class Cache(Handle[DatasetCacheStatus]):
    """One DatasetCache."""

    kind: ClassVar[str] = "DatasetCache"
    ended: ClassVar[tuple[str, ...]] = ("Ready", "Failed")
    failed: ClassVar[type[ConditionError]] = CacheFailed
