"""What the operator makes of bodies from the API server before it decides anything."""

from lead_operator.cluster.observe import observe_cache
from lead_testing.makers import a_cache_body, a_ready_cache


def test_a_caches_profile_and_answer_are_seen_and_an_old_answer_counts_for_nothing() -> None:
    body = a_cache_body(generation=2, storageProfile="cold")
    ready = {"type": "Ready", "status": "True", "message": "the cache is complete"}
    body["status"] = {"observedGeneration": 2, "digest": "d1" * 32, "conditions": [ready]}
    seen = observe_cache("towns", body)
    assert (seen.storage_profile, seen.ready, seen.digest) == ("cold", True, a_ready_cache().digest)
    body["status"]["observedGeneration"] = 1
    assert not observe_cache("towns", body).ready
    assert not observe_cache("towns", None).found
