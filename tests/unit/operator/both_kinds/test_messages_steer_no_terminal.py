"""What people and pods write into keys and reports stands in messages that administrators read at a terminal."""

from lead_operator.decisions.conditions import Finding, update_conditions
from lead_operator.decisions.failure_policy import explain_pod
from lead_operator.decisions.formatting import on_one_line
from lead_operator.decisions.plan import EventNote
from lead_operator.kube.event_recorder import build_event
from lead_operator.names import Condition
from lead_testing.makers import NOW, a_failed_pod, a_training_run

HOSTILE = "config.\x1b[31mEVIL\x07\x1b]0;t\x07\r\nFAKE LINE \u202egnp.\u2028\x9b1m \udc80 ü 汉"
SHOWN = "config.\\x1b[31mEVIL\\x07\\x1b]0;t\\x07  FAKE LINE \\u202egnp. \\x9b1m \\udc80 ü 汉"


def test_a_message_is_one_line_of_characters_that_are_shown() -> None:
    assert on_one_line(HOSTILE) == SHOWN and SHOWN.isprintable()
    assert on_one_line(SHOWN) is SHOWN


def test_conditions_events_and_failures_hold_such_messages_alone() -> None:
    """Audit: S-3"""
    failure = explain_pod(a_failed_pod(exit_code=64, message=HOSTILE), now=NOW, node_loss_s=60.0)
    assert failure is not None
    [condition] = update_conditions([], [Finding(Condition.FAILED, True, "R", failure.message)], generation=1, now=NOW)
    event = build_event(a_training_run().identity, EventNote("Warning", "R", HOSTILE), NOW)
    for message in (condition.message, event["message"], failure.message):
        assert SHOWN in message and message.isprintable()


def test_a_condition_keeps_lines_of_our_own_and_no_other_control() -> None:
    finding = Finding(Condition.ADVISORY, True, "Plateau", "one\x07\ntwo\x1b[2J")
    [condition] = update_conditions([], [finding], generation=1, now=NOW)
    assert condition.message == "one\\x07\ntwo\\x1b[2J"
