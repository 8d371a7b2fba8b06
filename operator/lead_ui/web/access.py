"""Who asks, and what they may see: the protocol that every page goes through before it reads a source."""

from typing import Protocol

from starlette.requests import Request

RUNS, CACHES, EVENTS, PODS, LOGS = "trainingruns", "datasetcaches", "events", "pods", "pods/log"


class NotSignedIn(Exception):
    """Nobody is known to ask: 401; the message states what is missing or why it was refused."""


class AccessUnavailable(Exception):
    """Rights cannot be checked now, so nothing is shown: 503."""


class Viewer(Protocol):
    """One person or account, for the time of one request."""

    @property
    def name(self) -> str:
        """For the head of the page; empty where everyone is served."""

    async def may(self, verb: str, resource: str, namespace: str, name: str = "") -> bool:
        """Returns whether the API server lets them; raises AccessUnavailable."""


class Access(Protocol):
    """Finds out who sends a request."""

    @property
    def signs_in(self) -> bool:
        """Whether there is a form for a token."""

    async def viewer(self, request: Request) -> Viewer:
        """Returns who asks; raises NotSignedIn and AccessUnavailable."""

    async def viewer_of(self, token: str) -> Viewer:
        """Returns whose token that is; raises NotSignedIn and AccessUnavailable."""


class Anyone:
    """The viewer of a laptop's own runs: whoever reaches the loopback address."""

    name = ""

    async def may(self, verb: str, resource: str, namespace: str, name: str = "") -> bool:
        """Everything here is theirs."""
        return True


class OpenAccess:
    """Access without a token: for folders of this machine alone."""

    signs_in = False

    async def viewer(self, request: Request) -> Viewer:
        """Returns the one viewer."""
        return Anyone()

    async def viewer_of(self, token: str) -> Viewer:
        """No token is needed."""
        return Anyone()
