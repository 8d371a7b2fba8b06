"""What kopf watches: TrainingRuns and DatasetCaches. Each event renews the operator's copy and asks for a look at it.

Read by `handlers.startup`. Nothing here decides or writes: the copies are level-triggered, so the newest state counts
and not what changed, and a list puts right what no event told. An event of `handlers.bounded_session` holds the
identity of its object, which kopf goes by, and its text, which is read here.
"""

from typing import Any

import kopf
import structlog

from lead_operator import names
from lead_operator.handlers.bounded_session import TEXT
from lead_operator.kube.informers import Informers
from lead_operator.kube.kinds import DATASET_CACHE, TRAINING_RUN, Kind
from lead_operator.kube.object_reader import Unreadable, read_resource

log = structlog.get_logger(__name__)


def register(registry: kopf.OperatorRegistry, informers: Informers) -> None:
    """Registers the handlers of both kinds."""

    @kopf.on.event(names.GROUP, names.VERSION, TRAINING_RUN.plural, registry=registry)  # type: ignore[untyped-decorator]
    async def training_run(event: kopf.RawEvent, **_: Any) -> None:
        take(TRAINING_RUN, event)

    @kopf.on.event(names.GROUP, names.VERSION, DATASET_CACHE.plural, registry=registry)  # type: ignore[untyped-decorator]
    async def dataset_cache(event: kopf.RawEvent, **_: Any) -> None:
        take(DATASET_CACHE, event)

    def take(kind: Kind, event: kopf.RawEvent) -> None:
        seen: dict[str, Any] = event["object"]
        informer = informers.fed(kind, seen["metadata"]["namespace"])
        if informer is None:
            return
        text: str = seen.pop(TEXT)  # kopf keeps what is left
        try:
            informer.take(event["type"], read_resource(text.encode()))
        except Unreadable as error:
            log.warning("object_skipped", watch=informer.name, begins=text[:200], error=str(error))
