"""What a fault of a watch has kept from the operator heals with the first event or list that tells as much."""

import time
from typing import Any

from lead_testing.kube_faults.healing import Healing


def event(version: int, uid: str = "u1", change: str = "MODIFIED") -> dict[str, Any]:
    return {"type": change, "object": {"metadata": {"uid": uid, "resourceVersion": str(version)}}}


def test_an_event_of_the_same_object_heals_and_an_older_or_another_one_does_not() -> None:
    healing = Healing()
    healing.lost("gone", "pods", event(7))
    for told in (event(6), event(9, "u2"), event(9, change="BOOKMARK")):
        healing.told("pods", told)
    healing.told("services", event(9))
    assert healing.open_wounds == 1
    healing.told("pods", event(7))
    assert (healing.open_wounds, len(healing.seconds["gone"])) == (0, 1)


def test_a_list_heals_what_was_lost_before_it_was_asked_for() -> None:
    healing = Healing()
    asked = time.monotonic()
    healing.lost("stall", "pods", event(7))
    healing.listed("pods", asked)
    assert healing.open_wounds == 1
    healing.listed("pods", time.monotonic())
    assert (healing.open_wounds, len(healing.seconds["stall"])) == (0, 1)


def test_an_outage_heals_with_a_list_after_its_end_of_everything_that_was_known() -> None:
    healing = Healing()
    for resource in ("pods", "nodes"):
        healing.listed(resource, time.monotonic())
    end = time.monotonic() + 60
    healing.away(end)
    healing.listed("pods", time.monotonic())
    assert healing.open_wounds == 2
    healing.listed("pods", end)
    assert healing.open_wounds == 1
