"""What advice on slow loading rests on: the GPU's load while steps run, and nothing of an epoch that is too short."""

import pytest
import torch

from lead_trainer.engine.reporting.perf import StepClock
from lead_trainer.engine.reporting.watch import GPU_SHARE, WAITING


def epoch(clock: StepClock, seconds: list[float], took_s: float, steps: int) -> dict[str, float]:
    """Trains steps of that length; `seconds` is the clock's time."""
    batches = clock.waiting_for(iter(range(steps)))
    for _ in batches:
        seconds[0] += took_s
        clock.step_done()
    return clock.epoch_done(1)


def test_the_load_of_an_epoch_is_the_mean_while_its_steps_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = iter([0, 0, *[80, 100] * 20])  # the first ones while it warms up, in an epoch of its own
    monkeypatch.setattr("torch.cuda.utilization", lambda device: next(loads))
    seconds = [0.0]
    clock = StepClock(torch.device("cuda"), now=lambda: seconds[0])
    assert epoch(clock, seconds, 1.0, 4) == {WAITING: 0.0}  # a second of steps after the warm-up
    assert epoch(clock, seconds, 1.0, 20)[GPU_SHARE] == pytest.approx(0.9)


def test_no_load_is_reported_where_the_driver_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(device: torch.device) -> int:
        raise ModuleNotFoundError("pynvml")

    monkeypatch.setattr("torch.cuda.utilization", none)
    seconds = [0.0]
    found = epoch(StepClock(torch.device("cuda"), now=lambda: seconds[0]), seconds, 1.0, 30)
    assert GPU_SHARE not in found and found[WAITING] == 0.0
