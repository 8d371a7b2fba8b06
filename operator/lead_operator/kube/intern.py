"""Keeps equal strings of many objects once: copies of a thousand runs and their pods repeat the same strings.

Called by `kube.informer` for each object that it keeps. A pool of its own and not `sys.intern`, which on some
releases of Python never lets go of a string.
"""

from functools import lru_cache
from typing import Any

MOST = 4096  # strings seen last; those of a single object are soon evicted

_shared = lru_cache(MOST)(str)  # of a string, `str` returns the string itself: the one that was there first


def share_strings(value: Any) -> Any:
    """Returns a copy of a JSON value that holds, of each string seen lately, the one that is kept already.

    It does not recurse: whoever wrote the value chose its depth.
    """
    copied: list[Any] = [value]
    unread: list[Any] = [copied]  # lists and objects of the copy whose entries are still the original's
    while unread:
        holder = unread.pop()
        for place, entry in enumerate(holder) if type(holder) is list else holder.items():
            kind = type(entry)
            if kind is str:
                holder[place] = _shared(entry)
            elif kind is dict or kind is list:
                holder[place] = entry.copy()  # orjson shares keys by itself
                unread.append(holder[place])
    return copied[0]
