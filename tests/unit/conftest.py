"""Property tests of this ring draw the same examples each time, and none of them is timed.

A change must be what makes a test fail: neither an example that was never drawn before, nor a machine that is busy for
a moment. Random examples, and many more, are drawn on demand by `make campaign`, which does not read this file.
"""

from hypothesis import HealthCheck, settings

settings.register_profile("ring", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ring")
