"""A child's name that another object holds: the resource tells who holds it, and never to delete what is ours."""

from typing import Any, cast

import pytest

from lead_operator.cluster.api_errors import AlreadyExists
from lead_operator.cluster.apply import Applier, NameTaken
from lead_operator.cluster.client import KubeClient
from lead_operator.cluster.event_recorder import EventRecorder
from lead_operator.cluster.informers import Informers
from lead_operator.cluster.kinds import TRAINING_RUN, KubernetesObject
from lead_operator.decisions.plan import EventNote, Plan
from lead_testing.makers import SETTINGS, a_run_body


class Taken:
    """An API server on which one pod is there already."""

    def __init__(self, owner: dict[str, Any]) -> None:
        self.events: list[EventNote] = []
        self._owners = [{**owner, "controller": True}] if owner else []

    async def create(self, body: KubernetesObject) -> KubernetesObject:
        """Refuses, as the server does."""
        raise AlreadyExists(409, "AlreadyExists", "it is there")

    async def get(self, kind: object, namespace: str, name: str) -> KubernetesObject:
        """Returns the pod that is there."""
        return {"metadata": {"name": name, "namespace": namespace, "uid": "p", "ownerReferences": self._owners}}

    def record(self, body: KubernetesObject, note: EventNote) -> None:
        """Keeps an event."""
        self.events.append(note)


STRANGER = "Pod x exists and does not belong to this TrainingRun"


@pytest.mark.parametrize(
    ("owner", "said"),
    [
        ({"kind": "TrainingRun", "name": "exp-big", "uid": "r"}, f"{STRANGER}, but to TrainingRun exp-big"),
        ({"kind": "Job", "name": "x", "uid": "j"}, f"{STRANGER}; delete or rename it"),
        ({}, f"{STRANGER}; delete or rename it"),
    ],
)
async def test_it_is_told_who_holds_the_name(owner: dict[str, Any], said: str) -> None:
    server, run = Taken(owner), a_run_body()
    client = cast(KubeClient, server)
    informers = Informers(client, ("team-a",), SETTINGS, lambda key: None, lambda key: None)
    applier = Applier(client, cast(EventRecorder, server), informers)
    owners = [{"uid": "me", "controller": True}]
    pod = {"kind": "Pod", "metadata": {"name": "x", "namespace": "team-a", "labels": {}, "ownerReferences": owners}}
    with pytest.raises(NameTaken, match=f"^{said}$"):
        await applier.apply(TRAINING_RUN, run, Plan(status=run.get("status", {}), creates=(pod,)))
    assert [note.message for note in server.events] == [said]
