"""What can go wrong in the operator; the type decides what happens next.

    LeadOperatorError
    ├── SpecError       a person must change the resource: condition Accepted=False, no retry
    └── SettingsError   the operator's own environment is wrong: it does not start, and logs the cause

Everything else is our bug and goes up with its traceback.
"""


class LeadOperatorError(Exception):
    """The root of what the operator raises on purpose."""


class SpecError(LeadOperatorError):
    """A resource asks for something that cannot be done; the message names object, field, found, expected, remedy."""


class SettingsError(LeadOperatorError):
    """An environment variable or a mounted file of the operator is missing or wrong."""
