"""Where a scan keeps routes together, each route is whole in one shard; elsewhere a build places samples as before."""

import numpy as np
import pytest

from lead_trainer.contract.raw_data import SampleKey, Scan
from lead_trainer.data.build_plan import plan_build
from lead_trainer.data.sample_order import shuffled

DIGEST = "5c" * 32


def a_scan(frames: list[int], *, together: bool) -> Scan:
    keys = tuple(SampleKey(f"r{route:03d}", frame) for route, count in enumerate(frames) for frame in range(count))
    return Scan((), keys, (), np.full(len(keys), 100, np.int64), routes_together=together)


def test_every_route_lies_whole_and_in_order_in_one_shard() -> None:
    scan = a_scan([40, 7, 12, 300, 1, 25, 40, 40], together=True)
    plan = plan_build(scan, DIGEST, part_bytes=5000)
    placed = {key: (plan.placement.shard[n], plan.placement.slot[n]) for n, key in enumerate(scan.samples)}
    for route in {key.route for key in scan.samples}:
        at = [placed[key] for key in scan.samples if key.route == route]
        assert {shard for shard, _ in at} == {at[0][0]}
        assert [slot for _, slot in at] == list(range(int(at[0][1]), int(at[0][1]) + len(at)))
    assert plan.placement.shards == len(plan.parts) > 3
    assert sorted(np.concatenate([part.samples for part in plan.parts])) == list(range(len(scan.samples)))


def test_routes_come_in_an_order_seeded_by_the_digest() -> None:
    scan = a_scan([4] * 60, together=True)

    def order(digest: str) -> list[str]:
        parts = plan_build(scan, digest, part_bytes=1000).parts
        return [scan.samples[n].route for part in parts for n in part.samples[::4]]

    assert order(DIGEST) == order(DIGEST) != sorted(order(DIGEST))
    assert order(DIGEST) != order("a7" * 32)


@pytest.mark.parametrize("count", [0, 1, 97])
def test_samples_that_need_no_company_lie_where_they_always_did(count: int) -> None:
    scan = a_scan([count], together=False)
    order = shuffled(count, int(DIGEST[:16], 16))
    plan = plan_build(scan, DIGEST, part_bytes=1000)
    assert [int(n) for part in plan.parts for n in part.samples] == order.tolist()
    assert [len(part.samples) for part in plan.parts] == [10] * (count // 10) + ([count % 10] if count % 10 else [])
