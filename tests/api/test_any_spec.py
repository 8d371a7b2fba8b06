"""Whatever spec one writes: it is refused with the field's name, or it settles with a reason, and nothing breaks.

Specs of both kinds are drawn from the CRDs' own schemas. A chain changes one object five times: after each change it
must be what a new object of that spec is, and what it was in the beginning once the first spec is back.
"""

import itertools
import os

from lead_testing.any_spec.chained import try_chains
from lead_testing.any_spec.chains import chains
from lead_testing.any_spec.states import states
from lead_testing.any_spec.trying import STAYS, Tried, try_states
from lead_testing.api_bench import Bench
from lead_testing.figures import record
from lead_testing.manifests import a_dataset_cache

SPECS = int(os.environ.get("LEAD_TEST_SPECS", "100"))
CHAINS = int(os.environ.get("LEAD_TEST_CHAINS", "2"))
SEED = os.environ.get("LEAD_TEST_SEED", "1")
SPECS_TOGETHER, CHAINS_TOGETHER = 50, 10


def test_any_spec_is_refused_by_name_or_settles_with_a_reason(bench: Bench) -> None:
    begin(bench)
    tried = Tried()
    for first in range(0, SPECS, SPECS_TOGETHER):
        chosen = itertools.islice(states(SEED), first, min(SPECS, first + SPECS_TOGETHER))
        try_states(bench, {f"spec-{first + place}": state for place, state in enumerate(chosen)}, tried)
    counts = tried.counts
    record("states", counts["tried"])
    record("invalid_refused_share", counts["invalid refused"] / counts["invalid"])
    record("taken", counts["taken"])
    record("settled_s", *tried.settled_s)
    assert tried.wrong == []
    assert (counts["tried"], counts["invalid refused"]) == (SPECS, counts["invalid"])
    assert min(counts["invalid"], counts["settled"]) >= SPECS // 10
    nothing_is_broken(bench)


def test_a_spec_that_was_changed_to_is_as_good_as_one_that_was_there_from_the_start(bench: Bench) -> None:
    bench.driver.script.held.add("pretrain")
    bench.driver.script.held_at = 1
    begin(bench)
    tried = Tried()
    for first in range(0, CHAINS, CHAINS_TOGETHER):
        chosen = itertools.islice(chains(SEED), first, min(CHAINS, first + CHAINS_TOGETHER))
        try_chains(bench, list(chosen), tried)
    record("chains", tried.counts["chains"])
    record("chain_states", tried.counts["tried"])
    record("settled_s", *tried.settled_s)
    assert tried.wrong == []
    assert tried.counts["chains"] == CHAINS
    nothing_is_broken(bench)


def begin(bench: Bench) -> None:
    """Starts the operator and makes the cache that every run trains on."""
    bench.operator.start()
    bench.apply(a_dataset_cache(STAYS, f"datasets/{STAYS}"))
    bench.wait_phase("dsc", STAYS, "Ready")


def nothing_is_broken(bench: Bench) -> None:
    assert bench.operator.exit_status() is None
    assert bench.operator.page("healthz") == (200, "ok")
    errors = [line for line in bench.operator.log.read_text().splitlines() if '"level": "error"' in line]
    beginning = "storage is (re)initializing"  # what an API server says of new kinds
    assert [line for line in errors if beginning not in line] == []
