"""The samples of one shard that cannot be made, named together: who repairs a dataset must not find them one by one.

Used by `build_workers`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lead_trainer.errors import BadData

MOST = 20  # damaged samples of a shard after which the search ends
_NAMED = 3  # beside the first
_MESSAGE_CHARS = 400  # a library's cause may hold the file's bytes


@dataclass(frozen=True)
class Damage:
    """Why a sample could not be made."""

    message: str


Made = tuple[int, bytes | Damage]


def caught(encode: Callable[[int], tuple[int, bytes]], number: int) -> Made:
    """Returns encode(number), or the damage in the place of its bytes."""
    try:
        return encode(number)
    except BadData as error:
        return number, Damage(str(error))


def whole(made: Iterator[Made], name: Callable[[int], str]) -> Iterator[tuple[int, bytes]]:
    """Yields the samples up to the first damaged one; raises BadData with its message and how many more there are."""
    found: list[tuple[int, Damage]] = []
    for number, result in made:
        if isinstance(result, Damage):
            found.append((number, result))
            if len(found) == MOST:
                break
        elif not found:
            yield number, result
    if found:
        raise BadData(_sentence(found, name))


def _sentence(found: list[tuple[int, Damage]], name: Callable[[int], str]) -> str:
    first = found[0][1].message
    first = first if len(first) <= _MESSAGE_CHARS else f"{first[:_MESSAGE_CHARS]}…"
    more = [name(number) for number, _ in found[1:]]
    if not more:
        return first
    few = ", ".join(more[:_NAMED]) + (", …" if len(more) > _NAMED else "")
    count = f"{len(more)}{' or more' if len(found) == MOST else ''}"
    return f"{first}; {count} other sample{'s' if len(more) > 1 else ''} of this shard cannot be made either ({few})"
