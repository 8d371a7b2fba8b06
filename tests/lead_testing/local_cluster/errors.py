"""The ways in which the local cluster gives up.

CannotRun             the cluster cannot be had; the message is what the user reads
├── CannotRunHere     this machine lacks something; the message says what, in one sentence
└── StepFailed        a step did not reach its end; the message names the step, its cause and its log
"""


class CannotRun(Exception):
    """The cluster cannot be had; the message says why and what to do."""


class CannotRunHere(CannotRun):
    """This machine lacks something the local cluster needs."""


class StepFailed(CannotRun):
    """A step did not reach its end."""
