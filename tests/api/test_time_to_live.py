"""A finished run goes when its time to live is over, by the API server's clock, whatever clock the operator has."""

from pathlib import Path

import pytest

from lead_testing.api_bench import Bench
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import CLOCK, wait_for

LONG_S, JUMP_S = 1800, 3600


@pytest.mark.parametrize("jump_s", [JUMP_S, -JUMP_S])
def test_a_finished_run_goes_at_the_end_of_its_time_and_not_when_a_clock_jumps(
    bench: Bench, tmp_path: Path, jump_s: int
) -> None:
    clock = tmp_path / "clock"
    clock.write_text("0")
    environment = {CLOCK: str(clock), "LEAD_RESYNC_SECONDS": "1"}
    bench.operator.start(**environment)
    run = a_training_run("drive", "town", ttlSecondsAfterFinished=LONG_S)
    bench.apply(a_dataset_cache("town", "datasets/town"), run)
    assert bench.wait_phase("trun", "drive", "Succeeded", "Failed")["phase"] == "Succeeded"
    clock.write_text(str(jump_s))
    looked = bench.operator.looks()
    wait_for("looks by the new time", lambda: bench.operator.looks() >= looked + 2)
    bench.operator.kill()
    bench.operator.start(**environment)  # a new process has never seen the right time
    wait_for("its looks", lambda: bench.operator.looks() >= 2)
    assert "deletionTimestamp" not in bench.get("trun", "drive")["metadata"]
    bench.kubectl("patch", "trun", "drive", "--type=merge", "-p", '{"spec":{"ttlSecondsAfterFinished":2}}')
    wait_for("the run to be gone", lambda: bench.items("trun") == [])
    assert bench.pods(), "the garbage collector takes them, by their owner; nobody collects here"
