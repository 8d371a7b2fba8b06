"""What a test logged: the type of the fixture `logged` of the unit rings."""

from collections.abc import MutableMapping
from typing import Any

Logged = list[MutableMapping[str, Any]]  # one a line: event, log_level and the line's own fields
