"""kopf's part: its watches of the two kinds, each event of which only asks for a look at the resource.

Read by `handlers.startup`. Nothing here decides or writes: kopf ignores errors of event handlers and may miss events,
so an event is a hint that makes the operator faster, never something it depends on. An event that reaches them holds
the identity of its object and nothing else (`handlers.bounded_session`).
"""

from typing import Any

import kopf

from lead_operator import names
from lead_operator.controllers.manager import Operator
from lead_operator.kube.kinds import DATASET_CACHE, TRAINING_RUN


def register(registry: kopf.OperatorRegistry, operator: Operator) -> None:
    """Registers the two event handlers."""

    @kopf.on.event(names.GROUP, names.VERSION, TRAINING_RUN.plural, registry=registry)  # type: ignore[untyped-decorator]
    async def training_run(meta: kopf.Meta, **_: Any) -> None:
        operator.notice(TRAINING_RUN.kind, meta["namespace"], meta["name"], meta["resourceVersion"])

    @kopf.on.event(names.GROUP, names.VERSION, DATASET_CACHE.plural, registry=registry)  # type: ignore[untyped-decorator]
    async def dataset_cache(meta: kopf.Meta, **_: Any) -> None:
        operator.notice(DATASET_CACHE.kind, meta["namespace"], meta["name"], meta["resourceVersion"])
