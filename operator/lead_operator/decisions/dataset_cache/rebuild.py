"""When a build that failed for its source begins again: as soon as the source is another. Pure.

The operator lists a source in the bucket after the failure, records what it found below `control/`, and lists it again
now and then. A volume it cannot list: there a user has to trigger the rebuild.
"""

from lead_operator.decisions.dataset_cache.verification import SOURCE_CHANGED
from lead_operator.decisions.formatting import seconds_since
from lead_operator.decisions.observed import ObservedBuild, ObservedBuildFailure
from lead_operator.decisions.plan import RunRecord
from lead_operator.resources.dataset_cache import DatasetCache
from lead_operator.settings import Settings
from lead_protocol.object_keys import ControlKeys
from lead_protocol.run_records import FailedSource

LISTED_EVERY_S = 60.0  # at most, and no build begins sooner after a failure
LONGEST_PAUSE_S = 3600.0
UNRECORDED_EVERY_S = 2.0  # while a failed build's source is not recorded
OF_THE_SOURCE = frozenset({"BadData", "SourceChanges", SOURCE_CHANGED})  # reasons of failures that other data may mend


def listed_every_s(settings: Settings) -> float:
    """Returns how often the source of a failed build is listed."""
    return min(LISTED_EVERY_S, settings.source_check_s)


def source_read_again_in_s(observed: ObservedBuild, failed: ObservedBuildFailure, every_s: float) -> float:
    """Returns when the source of a failed build is asked for next: soon, until it is recorded as the build found it.

    What is uploaded before that record counts as what the build has read, and no change would be seen. A source that
    stays unlisted, because it is too large, is asked for rarely.
    """
    ended_s = seconds_since(failed.ended_at or observed.status.completion_time, observed.now)
    unrecorded = not failed.source_sha256 and not observed.store_error
    return UNRECORDED_EVERY_S if unrecorded and ended_s is not None and ended_s < every_s else every_s


def begins_again_by_itself(cache: DatasetCache, reason: str) -> bool:
    """Returns whether a build that failed for this reason is begun again when its source has changed."""
    return bool(cache.source.prefix) and reason in OF_THE_SOURCE


def how_it_begins_again(cache: DatasetCache) -> str:
    """Returns what becomes of a failed build when its source has changed, as a clause for people."""
    if cache.source.prefix:
        return f"it is built again by itself when files below {cache.source.prefix} change"
    return "a volume is not watched: to rebuild, delete the DatasetCache and create it again"


def source_has_changed(
    cache: DatasetCache, observed: ObservedBuild, failed: ObservedBuildFailure, every_s: float
) -> bool:
    """Returns whether a failed build begins again now: after `every_s`, then twice, four times … an hour."""
    if not begins_again_by_itself(cache, failed.reason) or observed.source is None or not failed.source_sha256:
        return False
    if observed.store_error or observed.source.sha256 == failed.source_sha256:
        return False
    pause_s = min(LONGEST_PAUSE_S, every_s * 2 ** min(failed.rebuilds, 10))
    ended_s = seconds_since(failed.ended_at, observed.now)
    return ended_s is None or ended_s >= pause_s


def source_record(
    cache: DatasetCache, generation: int, observed: ObservedBuild, failed: ObservedBuildFailure | None
) -> tuple[RunRecord, ...]:
    """Returns the record of the source as it was found after a failure; none where it stands or is not known."""
    if failed is None or failed.source_sha256 or observed.source is None or observed.store_error:
        return ()
    if not begins_again_by_itself(cache, failed.reason):
        return ()
    keys = ControlKeys(cache.identity.namespace, cache.identity.uid)
    record = FailedSource(sha256=observed.source.sha256, files=observed.source.files)
    return (RunRecord(keys.failed_source(generation, failed.rebuilds), record.model_dump_json().encode()),)
