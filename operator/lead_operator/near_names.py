"""Names most like one that is not there, for the sentence that refuses it. Pure."""

import difflib
from collections.abc import Iterable


def near_name(name: str, known: Iterable[str]) -> str:
    """Returns the known name most like `name`, empty where none is near."""
    return next(iter(difflib.get_close_matches(name, sorted(known), n=1)), "")


def explain_unknown_profile(name: str, known: Iterable[str]) -> str:
    """Returns which field names a storage profile that the chart's values do not define, and which there are."""
    return f"spec.storageProfile is {name!r}, which is not defined; {known_profiles(name, known)}"


def known_profiles(name: str, known: Iterable[str]) -> str:
    """Returns the hint on other profiles for a message that rejects a storage profile."""
    listed, near = ", ".join(sorted(known)) or "none", near_name(name, known)
    return f"did you mean {near}? known are: {listed}" if near else f"known are: {listed}"
