"""Keeps copies of a kind that kopf watches: it lists, and each event comes from kopf's watch (`handlers.handlers`).

kopf asks `begin` where to watch from, so every watch follows a list that the copies have taken whole: nothing lies
between the two. A list is made at first, at long intervals, and again whenever kopf's watch restarts or has broken.
kopf hands over the events of one object in their order, but those of different objects in any; versions put right
what that may turn round.
"""

import asyncio
from typing import Any

from lead_operator.kube.informer import Informer, key_of_copy, version_of
from lead_operator.kube.kinds import KubernetesObject


class FedInformer(Informer):
    """The objects of one kind in one namespace ("" is all), listed by us and watched by kopf."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        """Arguments as of Informer."""
        super().__init__(*arguments, **settings)
        self._listed_version = "0"
        self._listed = asyncio.Event()  # there is a list that no watch has begun from
        self._wanted = asyncio.Event()  # a list is due at once
        self._held: list[tuple[str, KubernetesObject]] | None = None  # events while a list is under way

    async def begin(self) -> str:
        """Waits for a list that no watch has begun from, and returns the version to watch from."""
        if not self._listed.is_set():
            self.list_again()
        await self._listed.wait()
        self._listed.clear()
        return self._listed_version

    def list_again(self) -> None:
        """Lets a list be made now: kopf's watch has ended otherwise than was agreed."""
        self._wanted.set()

    def note_sign_of_life(self) -> None:
        """Takes note that kopf's watch has sent something, be it a bookmark."""
        self._live()

    def take(self, change: str, body: KubernetesObject) -> None:
        """Takes an event of kopf's watch; what a list or a later event has reported already is ignored."""
        if self._held is not None:
            self._held.append((change, body))
            return
        held = self._objects.get(key_of_copy(body))
        known = max(int(self._listed_version), version_of(held) if held is not None else 0)
        if version_of(body) > known:
            self._take_or_skip(change, body)

    async def _list(self) -> str:
        self._wanted.clear()
        self._held = []
        try:
            self._listed_version = await super()._list()
        finally:
            held, self._held = self._held, None
            for change, body in held:
                self.take(change, body)
        self._listed.set()
        return self._listed_version

    async def _follow(self, version: str, lasts_s: float) -> None:
        try:
            await asyncio.wait_for(self._wanted.wait(), lasts_s)
        except TimeoutError:
            return
