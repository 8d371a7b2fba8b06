"""Which tracks of a scenario are forecast, and from which present step on.

The focal track at step 49 is the benchmark's one task a scenario. Windows are a denser use of the same data: every
track at every tenth step from which the whole forecast is known.
"""

from collections.abc import Iterator

from lead_trainer.recipes.distill.benchmarks.argoverse2.scenario import FORECAST_STEPS, OBSERVED_STEPS, Scenario

PRESENT = OBSERVED_STEPS - 1
WINDOW_STRIDE = 10  # steps: one second
FEWEST_PAST_STEPS = 2  # a velocity needs two


def focal_window(scenario: Scenario, *, with_future: bool) -> tuple[str, int] | None:
    """Returns (focal track, present step); None where the track is not whole."""
    if scenario.focal not in scenario.track_ids:
        return None
    seen = scenario.seen[scenario.track(scenario.focal)]
    end = OBSERVED_STEPS + FORECAST_STEPS if with_future else OBSERVED_STEPS
    return (scenario.focal, PRESENT) if len(seen) >= end and seen[:end].all() else None


def windows(scenario: Scenario) -> Iterator[tuple[str, int]]:
    """Yields (track, present step) of every window, tracks in order."""
    for row, track in enumerate(scenario.track_ids):
        seen = scenario.seen[row]
        for present in range(WINDOW_STRIDE - 1, scenario.steps - FORECAST_STEPS, WINDOW_STRIDE):
            past = seen[max(0, present + 1 - OBSERVED_STEPS) : present + 1]
            if (
                seen[present]
                and past.sum() >= FEWEST_PAST_STEPS
                and seen[present + 1 : present + 1 + FORECAST_STEPS].all()
            ):
                yield track, present
