"""The model test of TrainingRun, at as many steps as a quick ring bears; `make campaign` runs 10^5 and more."""

from hypothesis import HealthCheck, settings

from lead_testing.decision_worlds.run_world import RunMachine, ShortLivedMachine, SideBySideMachine

TestAnyOrderOfEvents = RunMachine.TestCase
TestAnyOrderOfEvents.settings = settings(
    max_examples=60,
    stateful_step_count=50,
    suppress_health_check=list(HealthCheck),
)

TestAnyOrderOfEventsSideBySide = SideBySideMachine.TestCase
TestAnyOrderOfEventsSideBySide.settings = settings(TestAnyOrderOfEvents.settings, max_examples=30)

TestAnyOrderOfEventsOfShortLivedRuns = ShortLivedMachine.TestCase
TestAnyOrderOfEventsOfShortLivedRuns.settings = settings(TestAnyOrderOfEvents.settings, max_examples=60)
