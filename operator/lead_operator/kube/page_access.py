"""Who may read the operator's endpoints: the API server authenticates a token and authorises the GET.

As controller-runtime does it: a TokenReview, then a SubjectAccessReview of the page's path. Answers are kept for a
while, and reviews are asked for one at a time: whoever sends tokens at random costs the API server little.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable
from http import HTTPStatus

from lead_operator.kube.api_errors import ApiError
from lead_operator.kube.client import KubeClient
from lead_operator.kube.kinds import SUBJECT_ACCESS_REVIEW, TOKEN_REVIEW, KubernetesObject

KEPT_S = 60.0
MOST_KEPT = 256
LONGEST_TOKEN = 16 * 1024


class PageAccess:
    """Judges the Authorization header of one request after the other."""

    def __init__(self, client: KubeClient, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._client = client
        self._one_at_a_time = asyncio.Lock()
        self._judged: dict[bytes, tuple[float, HTTPStatus]] = {}  # by digest of token and path: no token is kept

    async def judge(self, authorization: str, path: str) -> HTTPStatus:
        """Returns OK, UNAUTHORIZED, FORBIDDEN, or SERVICE_UNAVAILABLE where the API server cannot be asked."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not 0 < len(token) <= LONGEST_TOKEN:
            return HTTPStatus.UNAUTHORIZED
        key = hashlib.sha256(f"{path}\n{token}".encode()).digest()
        async with self._one_at_a_time:
            until, verdict = self._judged.get(key, (0.0, HTTPStatus.UNAUTHORIZED))
            if self._now() < until:
                return verdict
            try:
                verdict = await self._review(token.strip(), path)
            except ApiError:
                return HTTPStatus.SERVICE_UNAVAILABLE
            if len(self._judged) >= MOST_KEPT:
                self._judged.pop(next(iter(self._judged)))
            self._judged[key] = (self._now() + KEPT_S, verdict)
            return verdict

    async def _review(self, token: str, path: str) -> HTTPStatus:
        review = await self._client.review(TOKEN_REVIEW, {"token": token})
        if not review.get("authenticated"):
            return HTTPStatus.UNAUTHORIZED
        user: KubernetesObject = review.get("user") or {}
        asked: KubernetesObject = {
            "user": user.get("username", ""),
            "groups": user.get("groups") or [],
            "uid": user.get("uid", ""),
            "extra": user.get("extra") or {},
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        review = await self._client.review(SUBJECT_ACCESS_REVIEW, asked)
        return HTTPStatus.OK if review.get("allowed") else HTTPStatus.FORBIDDEN
