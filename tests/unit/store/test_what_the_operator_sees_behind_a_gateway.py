"""What the operator sees of a run while a gateway answers in the store's place: an outage, and nothing that is gone."""

from dataclasses import replace

import pytest

from lead_operator.bucket.bucket_snapshot import BucketSnapshot
from lead_operator.bucket.bucket_view import BucketView
from lead_operator.bucket.profile_store import LIMITS
from lead_operator.bucket.store_backoff import StoreBackoff
from lead_protocol.object_keys import InstanceKeys
from lead_protocol.progress_record import ProgressRecord
from lead_protocol.store.s3 import S3Store
from lead_testing.makers import RUN_UID, SETTINGS
from lead_testing.minio_server import MinioServer
from lead_testing.store_proxy import Fault, StoreProxy

KEYS = InstanceKeys("team-a", RUN_UID, "train", 0)
OTHERS = InstanceKeys("team-b", "0b5d7c1e-1111-4c1e-9d3b-0f6a7e21c945", "train", 0)
NO_BACKOFF = StoreBackoff(0.0)
REPORT = ProgressRecord(attempt=1, seq=1, phase="Training", epoch=1, epochs=2, step=10, steps=20)


async def look(view: BucketView, keys: InstanceKeys = KEYS) -> BucketSnapshot:
    profile = SETTINGS.storage_profiles["default"]
    return await view.read_run(profile, keys.namespace, keys.uid, (("train", 0),), live=frozenset(), max_age_s=0.0)


@pytest.fixture
def store(minio: MinioServer, bucket: str, proxy: StoreProxy) -> S3Store:
    limits = replace(LIMITS, total_s=1.0, first_pause_s=0.05, longest_pause_s=0.1)
    return S3Store(minio.target(bucket, endpoint=proxy.endpoint), limits)


@pytest.mark.parametrize("gateway", ["bare-404", "404-page", "404-html", "499", "520", "200-html"])
@pytest.mark.parametrize("spoiled", ["prefix=", KEYS.progress(2)], ids=["lists", "reads"])
async def test_an_answer_of_a_gateway_is_an_outage(
    store: S3Store, proxy: StoreProxy, gateway: Fault, spoiled: str
) -> None:
    view = BucketView(SETTINGS, lambda profile: store, backoff=NO_BACKOFF)
    for attempt in (1, 2):
        store.put(KEYS.attempt(attempt), b"{}")
    store.put(KEYS.progress(1), REPORT.model_dump_json().encode())
    before = await look(view)
    assert (before.error, before.instances[0].progress) == ("", REPORT)
    newer = REPORT.model_copy(update={"attempt": 2, "step": 11})
    store.put(KEYS.progress(2), newer.model_dump_json().encode())
    proxy.plan(gateway, method="GET", part=spoiled, times=10**6)
    meanwhile = await look(view)
    assert meanwhile.error.startswith("StoreUnavailable: ") and meanwhile.instances == before.instances
    proxy.clear()
    after = await look(view)
    assert (after.error, after.instances[0].progress) == ("", newer)


async def test_an_outage_tells_no_resource_the_names_of_anothers(store: S3Store, proxy: StoreProxy) -> None:
    view = BucketView(SETTINGS, lambda profile: store, backoff=StoreBackoff(3600.0))
    store.put(OTHERS.progress(1), REPORT.model_dump_json().encode())
    proxy.plan("bare-404", part="progress", times=10**6)
    sibling = replace(OTHERS, uid="5c2f9d54-2222-4c1e-9d3b-0f6a7e21c945")
    first, second = await look(view, OTHERS), await look(view, sibling)
    assert first.error == second.error and "StoreUnavailable" in second.error
    assert OTHERS.uid not in second.error and "team-b" not in second.error
    assert (await look(view)).error == "", "the pause after an error is of one namespace"


async def test_a_record_that_was_listed_and_not_found_is_read_at_the_next_look(
    store: S3Store, proxy: StoreProxy
) -> None:
    view = BucketView(SETTINGS, lambda profile: store, backoff=NO_BACKOFF)
    store.put(KEYS.progress(1), REPORT.model_dump_json().encode())
    proxy.plan("404-no-such-key", part=KEYS.progress(1), times=1)
    assert (await look(view)).instances[0].progress is None
    assert (await look(view)).instances[0].progress == REPORT
