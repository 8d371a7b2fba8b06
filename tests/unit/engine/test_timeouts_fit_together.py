"""Deadlines that rest on each other, each written where it is used, leave room for the one inside."""

from lead_protocol.store.s3_target import S3Limits
from lead_testing.makers import a_training_run
from lead_trainer.data.loader import SAMPLE_OUTAGE_S, STUCK_AFTER_S
from lead_trainer.engine.checkpoints.commit import LEAVE_S
from lead_trainer.engine.checkpoints.retry_budget import STORE_OUTAGE_S
from lead_trainer.engine.group.ddp import DECISION_TIMEOUT_S, GRADIENT_TIMEOUT_S
from lead_trainer.launcher import PEER_GRACE_S
from lead_trainer.storage import LIMITS


def test_a_sample_gives_up_before_its_loader_and_that_before_the_other_ranks_and_those_before_the_operator() -> None:
    last_try_s = S3Limits().total_s  # of a store that is away: nothing comes
    assert SAMPLE_OUTAGE_S + last_try_s < STUCK_AFTER_S
    assert STUCK_AFTER_S < GRADIENT_TIMEOUT_S < a_training_run().failure_policy.hang_timeout_s


def test_rank_0_gives_a_store_up_before_the_others_give_rank_0_up() -> None:
    assert STORE_OUTAGE_S + S3Limits().total_s < DECISION_TIMEOUT_S


def test_a_rotated_key_is_waited_for_within_what_others_wait_for_a_sample_or_a_commit() -> None:
    assert LIMITS.rotation_s + LIMITS.total_s < STUCK_AFTER_S
    assert STORE_OUTAGE_S + LIMITS.rotation_s + LIMITS.total_s < DECISION_TIMEOUT_S


def test_a_rank_that_lost_another_reports_it_before_its_launcher_kills_it() -> None:
    assert LEAVE_S < PEER_GRACE_S
