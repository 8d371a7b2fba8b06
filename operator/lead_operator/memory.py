"""What one process keeps of each resource, in one place: whoever keeps something declares a part, and all go at once.

Nothing that a decision rests on lives here alone: a new process begins with none of it.
"""

from collections.abc import Iterator
from typing import TypeVar


class Part:
    """What one component keeps of a resource; made without arguments when it is first asked for."""

    def close(self) -> None:
        """Ends what still works on it; called when it is dropped."""


AnyPart = TypeVar("AnyPart", bound=Part)


class Memories:
    """The parts of every resource at hand, by UID; used from the event loop only."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[type[Part], Part]] = {}

    def of(self, uid: str, kind: type[AnyPart]) -> AnyPart:
        """Returns a part of a resource's memory, a new one where there is none."""
        return self.find(uid, kind) or self.put(uid, kind())

    def find(self, uid: str, kind: type[AnyPart]) -> AnyPart | None:
        """Returns a part of a resource's memory, or None where there is none."""
        found = self._parts.get(uid, {}).get(kind)
        assert found is None or isinstance(found, kind)
        return found

    def put(self, uid: str, part: AnyPart) -> AnyPart:
        """Keeps a part instead of the one that there is; returns it."""
        self.drop(uid, type(part))
        self._parts.setdefault(uid, {})[type(part)] = part
        return part

    def drop(self, uid: str, kind: type[Part]) -> None:
        """Drops one part of a resource's memory."""
        part = self._parts.get(uid, {}).pop(kind, None)
        if part is not None:
            part.close()

    def all(self, kind: type[AnyPart]) -> Iterator[AnyPart]:
        """Yields the part of a kind of every resource that has one."""
        found = [parts.get(kind) for parts in self._parts.values()]
        return (part for part in found if isinstance(part, kind))

    def forget(self, uid: str) -> None:
        """Drops all that is kept of a resource: it is gone."""
        for part in self._parts.pop(uid, {}).values():
            part.close()

    def close(self) -> None:
        """Drops everything: the process ends."""
        for uid in list(self._parts):
            self.forget(uid)
