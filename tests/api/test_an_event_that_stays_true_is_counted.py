"""A real API server counts an event that is said again, and takes it anew where it has let it go."""

import asyncio
import secrets
from dataclasses import replace

import pytest

from lead_operator.decisions.plan import EventNote
from lead_operator.kube.client import KubeClient
from lead_operator.kube.event_recorder import EventLimits, EventRecorder
from lead_testing.local_cluster.control_plane import ControlPlane
from lead_testing.makers import a_training_run

NOTE = EventNote("Warning", "FailedCreate", "exceeded quota")


async def test_an_event_that_stays_true_is_counted(
    control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = f"e{secrets.token_hex(4)}"
    control_plane.kubectl("create", "namespace", namespace)
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig))
    client = await KubeClient.connect()
    whose = replace(a_training_run().identity, namespace=namespace)
    recorder = EventRecorder(client, limits=EventLimits(repeat_s=0.0))
    task = asyncio.create_task(recorder.run())

    async def counted(times: str) -> None:
        shown = ["-n", namespace, "get", "events", "-o", "jsonpath={.items[*].count}"]
        async with asyncio.timeout(30):
            while await asyncio.to_thread(control_plane.kubectl, *shown) != times:
                await asyncio.sleep(0.05)

    try:
        for times in ("1", "2"):
            recorder.record(whose, NOTE)
            await counted(times)
        control_plane.kubectl("-n", namespace, "delete", "events", "--all")
        recorder.record(whose, NOTE)
        await counted("3")
    finally:
        task.cancel()
        await asyncio.wait([task])
        await client.close()
