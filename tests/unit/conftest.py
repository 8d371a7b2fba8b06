"""Property tests of this ring draw the same examples each time, and none of them is timed.

A change must be what makes a test fail: neither an example that was never drawn before, nor a machine that is busy for
a moment. Random examples, and many more, are drawn on demand by `make campaign`, which does not read this file.
"""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from structlog.testing import capture_logs

from lead_testing.logged import Logged

settings.register_profile("ring", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ring")


@pytest.fixture
def logged() -> Iterator[Logged]:
    """The lines that a test has logged so far, of any level and thread."""
    with capture_logs() as lines:
        yield lines
