"""status.display of a DatasetCache: the texts that the columns of `kubectl get` print. Pure."""

from dataclasses import replace

from lead_operator.decisions.formatting import format_duration, format_rate, format_size
from lead_operator.resources.dataset_cache_status import BuildSpeed, CacheDisplay, DatasetCacheStatus

DIGEST_DIGITS = 12
MAX_USED_BY_TEXT = 300


def with_display(status: DatasetCacheStatus, stages_at_work: tuple[str, ...]) -> DatasetCacheStatus:
    """Returns the status with the texts of its numbers."""
    speed = status.build.speed if status.build else None
    routes, shards, size = status.routes, status.shards, status.size_bytes
    display = CacheDisplay(
        routes=f"{routes.kept}/{routes.total}" if routes else "",
        shards=f"{shards.done}/{shards.total}" if shards else "",
        size="" if size is None else format_size(size),
        used_by=_used_by(status.used_by),
        digest=status.digest[:DIGEST_DIGITS],
        rate=rate_text(speed) if speed else "",
        eta=eta_text(speed) if speed else "",
        stage=",".join(stages_at_work),
    )
    return replace(status, display=display)


def rate_text(speed: BuildSpeed) -> str:
    """Returns samples per second, bytes per second where pods report no samples, or nothing."""
    if speed.milli_samples_per_second is not None:
        return format_rate(speed.milli_samples_per_second / 1000)
    return "" if speed.bytes_per_second is None else f"{format_size(speed.bytes_per_second)}/s"


def eta_text(speed: BuildSpeed) -> str:
    """Returns the time left, or nothing."""
    return "" if speed.eta_seconds is None else format_duration(speed.eta_seconds)


def _used_by(users: tuple[str, ...]) -> str:
    if len(users) <= 2:
        return ",".join(users)[:MAX_USED_BY_TEXT]
    return f"{users[0]} +{len(users) - 1}"
