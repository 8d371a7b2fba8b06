"""Writes what an erased status would lose into a run's folder of the bucket, before the status tells it.

Called by `controllers.reconcile` between decision and act. The verdict in the bucket cannot be taken back, so it must
not rest on an old copy: a status is written by compare-and-swap, an object is not. A store that takes nothing holds no
verdict up; the status then says that the bucket has still to be told (`decisions.training_run.records`).
"""

from dataclasses import replace

import structlog

from lead_operator.bucket.bucket_view import BucketView
from lead_operator.decisions.plan import Plan
from lead_operator.decisions.training_run.records import without_the_store
from lead_operator.kube.api_errors import Conflict
from lead_operator.kube.client import KubeClient
from lead_operator.kube.kinds import TRAINING_RUN, KubernetesObject
from lead_operator.resources.status_format import parse_status, status_json
from lead_operator.resources.training_run_status import TrainingRunStatus
from lead_operator.settings import StorageProfile

log = structlog.get_logger(__name__)


class RunRecorder:
    """Records for one operator process."""

    def __init__(self, client: KubeClient, bucket: BucketView) -> None:
        self._client = client
        self._bucket = bucket

    async def record(self, body: KubernetesObject, profile: StorageProfile | None, plan: Plan) -> Plan | None:
        """Returns the plan to carry out once its records are written; None where another verdict stands already.

        Raises Conflict where `body` is not the newest any more.
        """
        if profile is None or not plan.records:
            return plan
        final, owed = any(r.final for r in plan.records), any(r.final or r.counts for r in plan.records)
        if final:
            await self._require_newest(body)
        metadata = body["metadata"]
        stands, error = await self._bucket.record(profile, metadata["namespace"], metadata["uid"], plan.records)
        if error:
            log.warning("not_recorded", resource=f"{metadata['namespace']}/{metadata['name']}", error=error)
        if error and owed:
            now = self._client.clock.now()
            held, planned = (parse_status(TrainingRunStatus, each) for each in (body.get("status"), plan.status))
            return replace(plan, status=status_json(without_the_store(held, planned, error, now)))
        return plan if stands else None

    async def _require_newest(self, body: KubernetesObject) -> None:
        metadata = body["metadata"]
        live = await self._client.get(TRAINING_RUN, metadata["namespace"], metadata["name"])
        if live is None or live["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            raise Conflict(409, "Conflict", f"TrainingRun {metadata['namespace']}/{metadata['name']} has changed")
