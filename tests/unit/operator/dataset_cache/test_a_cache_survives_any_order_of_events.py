"""The model test of DatasetCache, at as many steps as a quick ring bears; `make campaign` runs 10^5 and more."""

from hypothesis import HealthCheck, settings

from lead_testing.decision_worlds.cache_world import CacheMachine

TestAnyOrderOfEvents = CacheMachine.TestCase
TestAnyOrderOfEvents.settings = settings(
    max_examples=60,
    stateful_step_count=50,
    suppress_health_check=list(HealthCheck),
)
