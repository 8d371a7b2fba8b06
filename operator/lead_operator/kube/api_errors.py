"""What a call to the API server can come to; the type decides what the caller does.

ApiError            status, reason and message of the server
├── NotFound        404
├── AlreadyExists   409 on create: adopt it or not, by its owner's UID
├── Conflict        409 on a write with resourceVersion or UID: read again, then decide again
├── Gone            410: the resourceVersion is too old, list again
├── Refused         400, 401, 403, 405, 413, 422: the same call would be refused again
│   └── UndeclaredFields  500 on a server-side apply with fields that the installed CRD does not know
├── AnswerTooLarge  more bytes than were asked for; a smaller page may fit
└── Unreachable     429, 5xx, broken connection, timeout: the world is late; it may have been carried out
"""

import re

# `.status.stages[name="pretrain",seed=0].loss: field not declared in schema`
_UNDECLARED = re.compile(r"((?:\.[A-Za-z0-9_]+(?:\[[^\]]*\])?)+): field not declared in schema")


class ApiError(Exception):
    """A call that ended without the answer wanted."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message

    def __str__(self) -> str:
        return f"{self.status} {self.reason}: {self.message}"


class NotFound(ApiError):
    """The object is not there."""


class AlreadyExists(ApiError):
    """An object of this name is there already."""


class Conflict(ApiError):
    """The object has changed since it was read, or is another one of the same name."""


class Gone(ApiError):
    """The server no longer knows the resourceVersion that was asked for."""


class Refused(ApiError):
    """The server will not do this, however often it is asked."""


class UndeclaredFields(Refused):
    """The installed CRD is older than what is written; `paths` names the fields: (`status`, `stages`, `loss`)."""

    @property
    def paths(self) -> list[tuple[str, ...]]:
        """The fields, each as the names on the way to it; keys of list items are left out."""
        found = _UNDECLARED.findall(self.message)
        return [tuple(re.sub(r"\[[^\]]*\]", "", path).strip(".").split(".")) for path in found]


class AnswerTooLarge(ApiError):
    """The answer has more bytes than the caller takes."""


class Unreachable(ApiError):
    """No response, or one that asks to retry later."""


def error_for(status: int, reason: str, message: str) -> ApiError:
    """Returns the error of the type that fits a status."""
    if status == 404:
        return NotFound(status, reason, message)
    if status == 409:
        return (AlreadyExists if reason == "AlreadyExists" else Conflict)(status, reason, message)
    if status == 410:
        return Gone(status, reason, message)
    if status == 500 and _UNDECLARED.search(message):
        return UndeclaredFields(status, reason, message)
    if status == 429 or status >= 500:
        return Unreachable(status, reason, message)
    return Refused(status, reason, message)
