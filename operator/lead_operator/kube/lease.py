"""One Lease, so that of several operator processes only one acts; the others keep their copies warm and wait.

Run by `controllers.manager` around the workers. Losing the lease ends the process. A lease is no fence: a frozen holder
may act once more after it wakes up. Safety rests on compare-and-swap, UIDs and deterministic names; this only keeps
two processes from doing all work twice.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import structlog

from lead_operator import metrics
from lead_operator.kube.api_errors import AlreadyExists, ApiError, Conflict
from lead_operator.kube.client import KubeClient
from lead_operator.kube.kinds import LEASE, KubernetesObject

DURATION_S = 30.0  # so long a successor waits for a leader that died without giving the lease back
RENEW_DEADLINE_S = 20.0  # a crowded node or API server answers late: a leader is not to end over it
RETRY_S = 2.0
RELEASE_TRIES = 3

log = structlog.get_logger(__name__)


class LeaseLost(Exception):
    """The lease could not be renewed in time, or another process holds it."""


@dataclass(frozen=True)
class LeaseTimes:
    """How long a lease lasts without its holder, and how hard the holder tries to keep it; in seconds."""

    duration_s: float = field(default_factory=lambda: DURATION_S)
    renew_deadline_s: float = field(default_factory=lambda: RENEW_DEADLINE_S)
    retry_s: float = field(default_factory=lambda: RETRY_S)

    def longest_renewal_s(self, since_renewed_s: float) -> float:
        """Returns how long a renewal may take, so that a leader ends before its lease however late answers are."""
        return min(self.renew_deadline_s / 2, max(self.renew_deadline_s - since_renewed_s, self.retry_s))


class Lease:
    """A Lease object in the operator's own namespace."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        name: str,
        identity: str,
        times: LeaseTimes | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = now
        self._times = times or LeaseTimes()
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._seen: tuple[str, str] | None = None  # holder and resourceVersion
        self._seen_at = 0.0  # by our own clock: other machines' clocks prove nothing
        self._body: KubernetesObject | None = None
        self._renewed_at = 0.0

    async def acquire(self) -> None:
        """Waits until this process holds the lease."""
        waiting = False
        while not await self._tried(self._times.renew_deadline_s / 2):
            if not waiting:
                log.info("lease_waiting", holder=self._seen and self._seen[0])
                waiting = True
            await asyncio.sleep(self._times.retry_s)
        metrics.LEADER.set(1)
        log.info("lease_acquired", identity=self._identity)

    async def keep(self) -> None:
        """Renews the lease for ever; raises LeaseLost once another holds it or renewing has failed for too long."""
        while True:
            await asyncio.sleep(self._times.retry_s)
            renewed = await self._tried(self._times.longest_renewal_s(self._now() - self._renewed_at))
            if not renewed and self._seen and self._seen[0] not in ("", self._identity):
                metrics.LEADER.set(0)
                raise LeaseLost(f"{self._seen[0]} holds the lease {self._namespace}/{self._name}")
            if self._now() - self._renewed_at > self._times.renew_deadline_s:
                metrics.LEADER.set(0)
                deadline = f"{self._times.renew_deadline_s:.0f} s"
                raise LeaseLost(f"lease {self._namespace}/{self._name} not renewed for {deadline}")

    async def release(self) -> None:
        """Gives the lease back where this process holds it, so that a successor need not wait it out.

        The lease is read again: a renewal that was under way when `keep` ended may have reached the server, and then
        what was last seen here is already old.
        """
        if self._body is None:
            return
        for _ in range(RELEASE_TRIES):
            try:
                async with asyncio.timeout(self._times.renew_deadline_s / 2):
                    body = await self._client.get(LEASE, self._namespace, self._name)
                    if body is None or body.get("spec", {}).get("holderIdentity") != self._identity:
                        return
                    await self._client.replace(self._with_spec(body, holder="", duration_s=1))
                    return
            except Conflict:
                continue
            except (ApiError, TimeoutError) as error:
                log.warning("lease_not_released", error=str(error))
                return
        log.warning("lease_not_released", error=f"written by another {RELEASE_TRIES} times in a row")

    async def _tried(self, within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                return await self._try()
        except (ApiError, TimeoutError) as error:
            log.warning("lease_not_written", error=str(error))
            return False

    async def _try(self) -> bool:
        started = self._now()
        body = await self._client.get(LEASE, self._namespace, self._name)
        try:
            if body is None:
                self._body = await self._client.create(self._with_spec(self._fresh(), holder=self._identity))
            else:
                if not self._free(body):
                    return False
                self._body = await self._client.replace(self._with_spec(body, holder=self._identity))
        except (Conflict, AlreadyExists):
            return False  # another was faster
        self._seen = (self._identity, "")
        self._renewed_at = started
        return True

    def _free(self, body: KubernetesObject) -> bool:
        spec = body.get("spec", {})
        seen = (spec.get("holderIdentity", ""), body["metadata"]["resourceVersion"])
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._now()
        if seen[0] in ("", self._identity):
            return True
        return self._now() - self._seen_at > float(spec.get("leaseDurationSeconds", self._times.duration_s))

    def _fresh(self) -> KubernetesObject:
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
        }

    def _with_spec(self, body: KubernetesObject, *, holder: str, duration_s: float | None = None) -> KubernetesObject:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        old = body.get("spec", {})
        changed = old.get("holderIdentity", "") != holder
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": int(duration_s or self._times.duration_s),
            "acquireTime": now if changed else old.get("acquireTime", now),
            "renewTime": now,
            "leaseTransitions": old.get("leaseTransitions", 0) + (1 if changed and holder else 0),
        }
        return {**body, "apiVersion": LEASE.api_version, "kind": LEASE.kind, "spec": spec}
