"""One sentence tells what bounds a run; each case is the table a user would see."""

import pytest

from lead_trainer.bench.advice import Kept, StageRate, advice

STAGES = ("network", "disk", "decode", "hand-over", "step")


@pytest.mark.parametrize(
    "rates, threads, cores, told",
    [
        ((5000, 20000, 900, 880, 100), 4, 8, "Bound by the step: loading delivers 8.8 times"),
        ((60, 20000, 900, 880, 100), 4, 8, "Bound by the network in a node's first epoch (60 samples/s against 100"),
        ((5000, 95, 900, 90, 100), 4, 8, "Bound by the disk"),
        ((5000, 20000, 95, 90, 100), 4, 8, "Bound by decoding: 4 threads on 8 cores decode 95 samples/s, the step "
         "could take 100; raise num_threads"),
        ((5000, 20000, 95, 90, 100), 8, 8, "give the run more cores"),
        ((5000, 20000, 900, 90, 100), 4, 8, "Bound by the hand-over: samples are decoded at 900 a second but "
         "delivered at 90"),
    ],
)  # fmt: skip
def test_the_sentence_names_what_bounds_the_run(rates: tuple[float, ...], threads: int, cores: int, told: str) -> None:
    found = advice([StageRate(stage, rate) for stage, rate in zip(STAGES, rates, strict=True)], threads, cores)
    assert told in found and found.endswith(".")


@pytest.mark.parametrize(
    "rates, share, told",
    [
        ((60, 20000, 900, 880, 100), 0.4, "Bound by the step"),  # 100 samples/s need 60 of the network
        ((30, 20000, 900, 880, 100), 0.4, "Bound by the network in every epoch: 40% of the cache stays on this "
         "machine's disk and the rest is streamed, at most 50 samples/s against 100 of the step; give the session "
         "cache room for all 200.0 GB."),
        ((30, 20000, 55, 50, 100), 0.4, "in every epoch"),  # loading is slower than the step, and the network no faster
        ((5000, 20000, 95, 90, 100), 0.4, "Bound by decoding"),
        ((5000, 95, 900, 90, 100), 0.4, "Bound by the disk"),
        ((60, 20000, 900, 880, 100), 1.0, "in a node's first epoch"),
    ],
)  # fmt: skip
def test_what_is_not_kept_is_streamed_in_every_epoch(rates: tuple[float, ...], share: float, told: str) -> None:
    found = [StageRate(stage, rate) for stage, rate in zip(STAGES, rates, strict=True)]
    assert told in advice(found, 4, 8, kept=Kept(share, 200 * 10**9))


def test_without_a_disk_nothing_is_said_of_one() -> None:
    rates = {"network": 110.0, "decode": 105.0, "hand-over": 100.0, "step": 100.0}
    streamed = advice([StageRate(*rate) for rate in rates.items()], 4, 8, kept=Kept(0.0, 10**9))
    assert "nothing of the cache stays on this machine's disk" in streamed and "set session_cache" in streamed
    rates["network"] = 5000.0
    assert "Bound by decoding" in advice([StageRate(*rate) for rate in rates.items()], 4, 8, kept=Kept(0.0, 10**9))
