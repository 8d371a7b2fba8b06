"""The times of the operator's lease fit each other and what the page for administrators promises."""

import re

from lead_operator.kube.lease import DURATION_S, RENEW_DEADLINE_S, RETRY_S, LeaseTimes
from lead_testing import PROJECT_ROOT

longest_renewal_s = LeaseTimes().longest_renewal_s
TRY_S = RENEW_DEADLINE_S / 2  # so long one call to the API server may take
PRODUCTION = PROJECT_ROOT / "charts/lead/README.md"


def test_one_late_answer_ends_no_leader() -> None:
    assert RETRY_S + TRY_S < RENEW_DEADLINE_S and longest_renewal_s(RETRY_S) == TRY_S


def test_a_leader_whose_renewals_fail_ends_before_its_lease_however_late_answers_are() -> None:
    """The last renewal begins a pause after the deadline at the latest."""
    begins = [tenth / 10 for tenth in range(int(10 * (RENEW_DEADLINE_S + RETRY_S)) + 1)]
    assert max(begin + longest_renewal_s(begin) for begin in begins) < DURATION_S
    assert DURATION_S.is_integer(), "leaseDurationSeconds is a whole number"


def test_a_leader_on_a_crowded_node_has_time_to_renew() -> None:
    """Kubernetes' own components take 15 s and 10 s: too little where a training holds every core."""
    assert DURATION_S >= 30 and RENEW_DEADLINE_S >= 20


def test_the_page_says_how_long_nobody_acts() -> None:
    """A successor has seen the last renewal a try late, waits for the duration, and looks once more a try later."""
    found = re.search(r"within (\d+) s if it\s+crashes", PRODUCTION.read_text())
    assert found
    longest = DURATION_S + 2 * RETRY_S + TRY_S
    assert longest <= int(found[1]) < longest + RETRY_S
