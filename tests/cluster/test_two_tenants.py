"""Alice and bob share a release and nothing else: what alice tries against bob and the release is refused.

Each attempt is a row of the tables in `lead_testing/tenants`. All are made once, on one release.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from lead_testing.installed import conditions
from lead_testing.live_runs import epoch_of
from lead_testing.local_cluster import Cluster
from lead_testing.manifests import a_training_run
from lead_testing.tenants import kubectl_attempts, store_attempts
from lead_testing.tenants.kubectl_attempts import KubectlAttempt
from lead_testing.tenants.store_attempts import CANARY, StoreAttempt
from lead_testing.tenants.two import (
    TwoTenants,
    install,
    prepare,
    remove,
    scene_of,
    starts,
    try_by_kubectl,
    try_by_resources,
    try_in_a_pod,
    what_bob_has,
)

FEWEST = 40


@dataclass(frozen=True)
class Tried:
    """What alice saw of each attempt, by its name, and what bob had before and after them."""

    two: TwoTenants
    in_a_pod: dict[str, str]
    by_kubectl: dict[str, str]
    by_resources: dict[str, str]
    before: dict[str, str]
    after: dict[str, str]
    starts_before: dict[str, int]


@pytest.fixture(scope="module")
def tried(cluster: Cluster, images: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tried]:
    """The release, after all attempts."""
    two = install(cluster, images)
    try:
        prepare(two, tmp_path_factory.mktemp("tenants"))
        starts_before = starts(two)
        with two.release.store() as store:
            before = what_bob_has(two, store)
            scene = scene_of(two, store)
        in_a_pod = try_in_a_pod(two, scene)
        by_kubectl, by_resources = try_by_kubectl(two), try_by_resources(two)
        with two.release.store() as store:
            after = what_bob_has(two, store)
        yield Tried(two, in_a_pod, by_kubectl, by_resources, before, after, starts_before)
    finally:
        remove(two)


def by_name(attempts: Iterable[StoreAttempt | KubectlAttempt]) -> list[Any]:
    return [pytest.param(each, id=each.name) for each in attempts]


def test_there_are_enough_attempts() -> None:
    names = [each.name for each in store_attempts.ATTEMPTS] + [each.name for each in kubectl_attempts.ATTEMPTS]
    assert len(names) == len(set(names)) >= FEWEST


@pytest.mark.parametrize("attempt", by_name(store_attempts.OWN))
def test_alices_accounts_may_do_what_is_hers(tried: Tried, attempt: StoreAttempt) -> None:
    assert re.search(attempt.must, tried.in_a_pod[attempt.name])


@pytest.mark.parametrize("attempt", by_name(store_attempts.ATTEMPTS))
def test_an_attempt_from_a_pod_is_refused(tried: Tried, attempt: StoreAttempt) -> None:
    """Keys, tokens, sessions, headers and ports, by code in a pod of hers: she sees a refusal and nothing of bob's.

    Audit: B3, S12, S13, minor-metrics.
    """
    seen = tried.in_a_pod[attempt.name]
    assert re.search(attempt.must, seen, re.DOTALL), seen
    assert CANARY not in seen


@pytest.mark.parametrize("attempt", by_name(kubectl_attempts.ATTEMPTS))
def test_an_attempt_by_kubectl_is_refused(tried: Tried, attempt: KubectlAttempt) -> None:
    """With `edit` in her own namespace: kubectl fails, and says why. Audit: S-1, S-4, S-6."""
    seen = tried.by_kubectl[attempt.name]
    assert not seen.startswith("succeeded: "), seen
    assert re.search(attempt.must, seen), seen


def test_what_admission_cannot_see_a_condition_refuses(tried: Tried) -> None:
    """Weights, checkpoints and a profile of bob's: the fixture waits for each condition. Audit: B3, S-3, S-4."""
    assert len(tried.by_resources) == 5


def test_forged_records_of_her_own_run_end_nothing_and_are_named(tried: Tried) -> None:
    """Her role may write into her own run's folder: what lies there ends no run, and the status stays true.

    Audit: S14, minor-integers, minor-empty-final.
    """
    assert set(tried.in_a_pod["forged"].split()) == {"200"}
    own = tried.two.of(tried.two.alice)
    own.wait_for(
        "the forged checkpoint to be named",
        lambda: "ImplausibleCheckpoint" in str(conditions(own.status("trainingrun", "mine"))),
    )
    epoch = epoch_of(own, "mine")
    own.wait_for("a true epoch after it", lambda: epoch < epoch_of(own, "mine") < 10**5)
    status = own.status("trainingrun", "mine")
    assert (status["phase"], status["stages"][0]["attempt"], status["restarts"]["total"]) == ("Running", 1, 0)
    assert own.status("datasetcache", "town")["phase"] == "Ready"


def test_what_bob_has_is_as_it_was(tried: Tried) -> None:
    """Every byte of his in the store, his resources and the release's, but for the times of their status. Audit: B3."""
    assert tried.before == tried.after
    assert sum(tried.two.bob.namespace in name for name in tried.before) > 10


def test_bob_goes_on_and_nothing_of_the_release_was_restarted(tried: Tried) -> None:
    """Audit: B3, S-1."""
    tried.two.alice.run("kubectl", "delete", "trainingruns", "--all", "--wait=false")
    bob = tried.two.of(tried.two.bob)
    stages = [{"name": "pretrain", "epochs": 1}]
    tried.two.bob.apply(a_training_run("after", "town", nodes=1, stages=stages))
    bob.wait_for_phase("trainingrun", "after", "Succeeded", deadline_s=300)
    assert starts(tried.two) == tried.starts_before
    assert set(starts(tried.two).values()) == {0}
