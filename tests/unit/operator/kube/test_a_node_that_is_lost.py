"""How long a node counts as away: what nobody could see, because the operator was cut off too, is no absence."""

import time
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any, cast

import pytest

from lead_operator.kube.api_errors import ApiError, Gone, Unreachable
from lead_operator.kube.client import KubeClient
from lead_operator.kube.copies import NodeHealth, NodeWatch
from lead_operator.kube.informer import Informer
from lead_operator.kube.informers import Informers
from lead_operator.kube.kinds import NODE, KubernetesObject
from lead_testing.makers import NOW, SETTINGS

AWAY_SINCE = NOW - timedelta(minutes=3)


def a_node(ready: str, *, version: int = 1) -> KubernetesObject:
    told = {"type": "Ready", "status": ready, "lastTransitionTime": AWAY_SINCE.isoformat()}
    metadata = {"name": "n", "uid": "u", "resourceVersion": str(version)}
    return {"metadata": metadata, "status": {"conditions": [told]}}


def watched(*nodes: KubernetesObject, for_s: float | None) -> NodeWatch:
    """Returns a watch that has seen the nodes for so long without a break; None: it does not see them now."""
    informers = Informers(cast(KubeClient, None), ("team-a",), SETTINGS, lambda key: None, lambda key: None)
    informer = informers.nodes.informer
    informer.synced.set()
    informer.seen_since = None if for_s is None else time.monotonic() - for_s
    for node in nodes:
        informer.note_own_write(node)
    return informers.nodes


def away_s(health: NodeHealth) -> float:
    assert not health.ready and health.not_ready_since is not None
    return (NOW - health.not_ready_since) / timedelta(seconds=1)


def test_a_node_is_away_since_it_was_not_ready_and_no_longer_than_it_could_be_seen() -> None:
    assert away_s(watched(a_node("Unknown"), for_s=3600).health("n", NOW)) == 180
    assert away_s(watched(a_node("Unknown"), for_s=5).health("n", NOW)) == pytest.approx(5, abs=1)
    assert away_s(watched(for_s=3600).health("n", NOW)) == 0
    assert watched(a_node("True"), for_s=5).health("n", NOW) == NodeHealth(True)


def test_nothing_is_judged_by_copies_that_may_be_old() -> None:
    assert watched(a_node("Unknown"), for_s=None).health("n", NOW) == NodeHealth(False)
    assert watched(for_s=None).health("n", NOW) == NodeHealth(False)
    assert watched(a_node("True"), for_s=None).health("n", NOW) == NodeHealth(True)


def test_a_node_that_was_back_unasked_is_away_anew_when_it_goes_again() -> None:
    nodes = watched(for_s=3600)
    assert away_s(nodes.health("n", NOW - timedelta(minutes=30))) == 1800
    nodes.informer.note_own_write(a_node("True"))
    nodes.informer.forget("", "n")
    assert away_s(nodes.health("n", NOW)) == 0


class Over(Exception):
    """The test has seen enough."""


class Server:
    """Lists nothing; each watch ends as it is told, the last one with the test."""

    def __init__(self, ends: list[ApiError | None], watch_s: float = 60.0) -> None:
        self._ends = ends
        self.seen: list[float | None] = []
        self.informer = Informer(cast(KubeClient, self), NODE, "", watch_s=watch_s, first_pause_s=0.001)

    async def list(self, kind: object, namespace: str, **_: Any) -> tuple[list[KubernetesObject], str]:
        """The API server's answer."""
        return [], "1"

    async def watch(self, kind: object, namespace: str, **_: Any) -> AsyncGenerator[tuple[str, KubernetesObject], None]:
        """Tells of one node, then ends."""
        self.seen.append(self.informer.seen_since)
        if not self._ends:
            raise Over()
        yield "ADDED", a_node("True", version=len(self.seen))
        if (error := self._ends.pop(0)) is not None:
            raise error


TOO_OLD, CUT = Gone(410, "Expired", "too old"), Unreachable(0, "ClientError", "cut off")


@pytest.mark.parametrize("broken", [TOO_OLD, CUT])
async def test_nodes_are_seen_anew_after_a_longer_silence_than_a_watch_may_keep(
    broken: ApiError,
) -> None:
    server = Server([None, broken], watch_s=0.0)  # any silence is longer
    with pytest.raises(Over):
        await server.informer.run()
    first, after_its_end, after_the_break = server.seen
    assert first is not None and after_its_end == first
    assert after_the_break is not None and after_the_break > first


async def test_a_proxy_that_cuts_every_watch_hides_no_node_that_stays_away() -> None:
    server = Server([CUT, TOO_OLD, CUT])
    with pytest.raises(Over):
        await server.informer.run()
    assert server.seen[0] is not None and server.seen == [server.seen[0]] * 4
