"""The store a trainer process talks to, from its environment; a missing variable is the user's to set."""

from collections.abc import Mapping

from lead_protocol import environment
from lead_protocol.store.object_store import ObjectStore
from lead_protocol.store.open_store import StoreNotConfigured
from lead_protocol.store.open_store import open_store as open_named_store
from lead_protocol.store.s3_target import S3Limits
from lead_protocol.store.session_policy import Access, PolicyNotPossible
from lead_trainer.errors import BadConfig

LIMITS = S3Limits(rotation_s=300.0)  # the kubelet updates a changed Secret within two minutes


def open_store(environ: Mapping[str, str], access: Access | None = None) -> ObjectStore:
    """Returns the store that LEAD_STORE_URL names; raises BadConfig naming the variable or file that is wrong.

    `access`: all that the process needs of it; a pod's temporary credentials are narrowed to that.
    """
    try:
        return open_named_store(environ, limits=LIMITS, access=access)
    except (StoreNotConfigured, PolicyNotPossible) as error:
        raise BadConfig(str(error)) from error


def named_store(url: str | None, environ: Mapping[str, str]) -> ObjectStore:
    """Returns the store a person named, or the environment's."""
    return open_store({**environ, environment.STORE_URL: url} if url else environ)
