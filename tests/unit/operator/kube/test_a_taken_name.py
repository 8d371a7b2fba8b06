"""A child's name that another object holds: the resource tells who holds it, and never to delete what is ours."""

from typing import Any, cast

import pytest

from lead_operator.controllers.apply import Applier, NameTaken
from lead_operator.decisions.plan import EventNote, Plan
from lead_operator.kube.api_errors import AlreadyExists, Conflict
from lead_operator.kube.client import KubeClient
from lead_operator.kube.event_recorder import EventRecorder
from lead_operator.kube.informers import Informers
from lead_operator.kube.kinds import POD, TRAINING_RUN, KubernetesObject
from lead_operator.resources.stored import read_stored
from lead_testing.makers import RUN_UID, SETTINGS, a_run_body


class Taken:
    """An API server on which one pod is there already."""

    def __init__(self, owner: dict[str, Any], run_uid: str = "") -> None:
        self.events: list[EventNote] = []
        self.deleted: list[str] = []
        self._owners = [{**owner, "controller": True}] if owner else []
        self._run_uid = run_uid  # of the run that is there now; empty: none is

    async def create(self, body: KubernetesObject) -> KubernetesObject:
        """Refuses, as the server does."""
        raise AlreadyExists(409, "AlreadyExists", "it is there")

    async def get(self, kind: object, namespace: str, name: str) -> KubernetesObject | None:
        """Returns the pod that is there, or the run."""
        if kind is not POD:
            return {"metadata": {"name": name, "uid": self._run_uid}} if self._run_uid else None
        return {"metadata": {"name": name, "namespace": namespace, "uid": "p", "ownerReferences": self._owners}}

    async def delete(self, kind: object, namespace: str, name: str, *, uid: str) -> None:
        """Deletes a child."""
        self.deleted.append(uid)

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
    server = Taken(owner)
    with pytest.raises(NameTaken, match=f"^{said}$"):
        await create_pod(server)
    assert [note.message for note in server.events] == [said]


async def test_a_pod_of_an_earlier_run_of_the_name_is_deleted_and_of_a_later_one_never() -> None:
    other = {"kind": "TrainingRun", "name": "night-drive", "uid": "other"}
    earlier = Taken(other, run_uid=RUN_UID)
    with pytest.raises(NameTaken, match="belongs to an earlier TrainingRun; it is being deleted"):
        await create_pod(earlier)
    assert earlier.deleted == ["p"]
    for now_there in ("other", ""):  # the operator slept while its run was deleted and made again, or deleted for good
        later = Taken(other, run_uid=now_there)
        with pytest.raises(Conflict, match="TrainingRun team-a/night-drive is gone"):
            await create_pod(later)
        assert later.deleted == []


async def create_pod(server: Taken) -> None:
    """Applies a plan that creates one pod of the run `night-drive`."""
    run, client = read_stored(a_run_body(), TRAINING_RUN.kind), cast(KubeClient, server)
    informers = Informers(client, ("team-a",), SETTINGS, lambda key: None, lambda key: None)
    applier = Applier(client, cast(EventRecorder, server), informers)
    owners = [{"uid": "me", "controller": True}]
    pod = {"kind": "Pod", "metadata": {"name": "x", "namespace": "team-a", "labels": {}, "ownerReferences": owners}}
    await applier.apply(TRAINING_RUN, run, Plan(status=run.status, creates=(pod,)))
