"""Keeps equal strings of many objects once: copies of a thousand runs and their pods say the same words over and over.

Called by `cluster.informer` for each object that it keeps. A pool of its own and not `sys.intern`, which on some
releases of Python never lets go of a string.
"""

from functools import lru_cache
from typing import Any

MOST = 4096  # words that were seen last; what is in one object alone soon makes room

_shared = lru_cache(MOST)(str)  # of a string, `str` returns the string itself: the one that was there first


def share_strings(value: Any) -> Any:
    """Returns a JSON value that holds, of each string seen lately, the one that is kept already."""
    if type(value) is str:
        return _shared(value)
    if type(value) is dict:
        return {key: share_strings(entry) for key, entry in value.items()}  # orjson shares keys by itself
    if type(value) is list:
        return [share_strings(entry) for entry in value]
    return value
