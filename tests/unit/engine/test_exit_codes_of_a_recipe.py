"""A recipe may end in a code of its own, which `failurePolicy.fatalExitCodes` can name."""

import pytest

from lead_trainer.errors import TrainerError, exit_code_of


class DeadSensor(TrainerError):
    exit_code = 42


def test_an_error_class_of_ones_own_ends_in_its_code() -> None:
    assert exit_code_of(DeadSensor("sensor 3 is silent")) == 42


@pytest.mark.parametrize(
    ("said", "ends_in"),
    [
        (42, 42),
        (65, 65),
        (0, 1),  # nothing ends well in the middle of training
        (None, 1),
        ("a sentence", 1),
        (300, 1),
        (-1, 1),
        *((retried, 1) for retried in (75, 79, 80, 81, 82)),  # these would promise what sys.exit has not done
    ],
)
def test_sys_exit_keeps_its_code_unless_it_promises_what_it_has_not_done(said: object, ends_in: int) -> None:
    assert exit_code_of(SystemExit(said)) == ends_in
