"""Credentials of the machine or container: ECS, EKS Pod Identity, EC2 instance metadata; through minio-py.

Its provider asks the addresses that AWS's variables name. Ours adds deadlines and the classes of errors.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime

import urllib3
from minio.credentials.providers import IamAwsProvider, Provider

from lead_protocol.store.credentials import Credentials
from lead_protocol.store.renewed_credentials import Session
from lead_protocol.store.s3_answers import TryAgain

SOURCE = "instanceRole credentials (of AWS's metadata service)"
_LONGEST_S = 3600.0  # then they are requested again, whatever their stated lifetime


def aws_provider(timeout_s: float) -> Provider:
    """Returns minio-py's provider, with one try of at most `timeout_s` per request."""
    return IamAwsProvider(http_client=urllib3.PoolManager(retries=False, timeout=timeout_s))


def obtain_role(
    timeout_s: float,
    provider: Callable[[float], Provider] = aws_provider,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Session:
    """Asks once for the role's credentials; raises TryAgain where there are none to be had."""
    began = time.monotonic()
    try:
        found = provider(timeout_s).retrieve()
        if not (found.access_key and found.secret_key):
            raise ValueError("the answer holds no key")
        end = found.expiration
        life_s = _LONGEST_S if end is None else (_aware(end) - clock()).total_seconds()
    # Whatever the service answers passes through a parser that checks nothing.
    except (ValueError, KeyError, TypeError, AttributeError, OSError, urllib3.exceptions.HTTPError) as error:
        took = time.monotonic() - began
        raise TryAgain(
            f"{SOURCE}: {type(error).__name__} after {took:.0f} s; has this pod a role?", uncertain=False
        ) from error
    if life_s <= 0:
        raise TryAgain(
            f"{SOURCE}: the credentials ended {-life_s:.0f} s ago; check this machine's clock", uncertain=False
        )
    credentials = Credentials(found.access_key, found.secret_key, found.session_token or "")
    return Session(credentials, min(life_s, _LONGEST_S))


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
