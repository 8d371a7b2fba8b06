"""Who asks, by token or by a proxy's headers, and what the API server lets them see.

The API server decides both: TokenReview finds out whose a token is, SubjectAccessReview whether they may. Answers are
kept for half a minute and by digest, so no token is held. A right that was taken away is gone after that time.
"""

import asyncio
import hashlib
import hmac
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from lead_operator.kube.api_errors import ApiError
from lead_operator.kube.client import KubeClient
from lead_operator.kube.kinds import SUBJECT_ACCESS_REVIEW, TOKEN_REVIEW, KubernetesObject
from lead_operator.names import GROUP
from lead_ui.cluster.settings import ProxyHeaders
from lead_ui.web.access import CACHES, RUNS, AccessUnavailable, NotSignedIn
from lead_ui.web.sign_in import cookie_name

KEPT_S = 30.0
MOST_KEPT = 20_000
LONGEST_TOKEN = 16 * 1024
AT_ONCE = 16  # reviews
AUTHENTICATED = "system:authenticated"
_NONE = "Sign in with a token of the cluster to see the runs that your own rights show."
_WRONG = "The API server does not accept this token: it is wrong, has expired, or is meant for somebody else."
_AWAY = "The API server does not answer, so nobody's rights can be checked and nothing is shown."


@dataclass(frozen=True)
class Person:
    """A user as the API server knows them; what they may do is asked once in a while."""

    name: str
    groups: tuple[str, ...]
    uid: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    reviews: "Reviews | None" = field(default=None, repr=False, compare=False)

    async def may(self, verb: str, resource: str, namespace: str, name: str = "") -> bool:
        """Returns whether the API server lets them; raises AccessUnavailable."""
        assert self.reviews is not None
        return await self.reviews.may(self, verb, resource, namespace, name)


class Reviews:
    """Asks the API server about tokens and rights, and keeps its answers for a while."""

    def __init__(self, client: KubeClient, now: Callable[[], float] = time.monotonic) -> None:
        self._client, self._now = client, now
        self._kept: OrderedDict[bytes, tuple[float, Person | bool | None]] = OrderedDict()
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def person(self, token: str) -> Person | None:
        """Returns whose token that is, None for nobody's; raises AccessUnavailable."""

        async def ask() -> Person | None:
            review = await self._client.review(TOKEN_REVIEW, {"token": token})
            if not review.get("authenticated"):
                return None
            user: KubernetesObject = review.get("user") or {}
            groups = tuple(user.get("groups") or ())
            return Person(user.get("username", ""), groups, user.get("uid", ""), user.get("extra") or {}, self)

        found = await self._once(("token", token), ask)
        return found if isinstance(found, Person) else None

    async def may(self, person: Person, verb: str, resource: str, namespace: str, name: str) -> bool:
        """Returns whether a person may do something; raises AccessUnavailable."""
        kind, _, subresource = resource.partition("/")
        asked: KubernetesObject = {
            "user": person.name,
            "groups": list(person.groups),
            "uid": person.uid,
            "extra": dict(person.extra),
            "resourceAttributes": {
                "verb": verb,
                "group": GROUP if resource in (RUNS, CACHES) else "",
                "resource": kind,
                "subresource": subresource,
                "namespace": namespace,
                "name": name,
            },
        }

        async def ask() -> bool:
            return bool((await self._client.review(SUBJECT_ACCESS_REVIEW, asked)).get("allowed"))

        return await self._once((repr(asked),), ask) is True

    async def _once(self, key: tuple[str, ...], ask: Callable[[], Any]) -> Person | bool | None:
        digest = hashlib.sha256("\n".join(key).encode()).digest()
        until, found = self._kept.get(digest, (0.0, None))
        if self._now() < until:
            return found
        try:
            async with self._turns:
                answer: Person | bool | None = await ask()
        except ApiError as error:
            raise AccessUnavailable(_AWAY) from error
        while len(self._kept) >= MOST_KEPT:
            self._kept.popitem(last=False)
        self._kept[digest] = (self._now() + KEPT_S, answer)
        self._kept.move_to_end(digest)
        return answer


class TokenAccess:
    """Finds out who sends a request: by a proxy's headers, the Authorization header, or the cookie of the form."""

    signs_in = True

    def __init__(self, reviews: Reviews, proxy: ProxyHeaders | None = None) -> None:
        self._reviews, self._proxy = reviews, proxy

    async def viewer(self, request: Request) -> Person:
        """Returns who asks; raises NotSignedIn and AccessUnavailable."""
        if (person := self._by_proxy(request)) is not None:
            return person
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if not token or scheme.lower() != "bearer":
            token = request.cookies.get(cookie_name(request), "")
        if not token:
            raise NotSignedIn(_NONE)
        return await self.viewer_of(token.strip())

    async def viewer_of(self, token: str) -> Person:
        """Returns whose token that is; raises NotSignedIn and AccessUnavailable."""
        if not 0 < len(token) <= LONGEST_TOKEN or not token.isprintable():
            raise NotSignedIn(_WRONG)
        person = await self._reviews.person(token)
        if person is None or not person.name:
            raise NotSignedIn(_WRONG)
        return person

    def _by_proxy(self, request: Request) -> Person | None:
        """Returns whom the proxy names; None where it does not name anybody, or where it cannot prove that it is it.

        Names and groups of Kubernetes itself are not the proxy's to give.
        """
        if self._proxy is None:
            return None
        given = request.headers.get(self._proxy.secret_header, "").encode()
        name = request.headers.get(self._proxy.user, "").strip()
        if not hmac.compare_digest(given, self._proxy.secret.encode()) or not name or name.startswith("system:"):
            return None
        listed = request.headers.getlist(self._proxy.groups) if self._proxy.groups else []
        groups = [group.strip() for line in listed for group in line.split(",")]
        own = tuple(group for group in groups if group and not group.startswith("system:"))
        return Person(name, (*own, AUTHENTICATED), reviews=self._reviews)
