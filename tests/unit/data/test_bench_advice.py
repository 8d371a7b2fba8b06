"""One sentence tells what bounds a run; each case is the table a user would see."""

import pytest

from lead_trainer.cli_bench import StageRate, advice

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
