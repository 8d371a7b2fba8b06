"""The store a trainer process talks to, from its environment; a missing variable is the user's to set."""

from collections.abc import Mapping

from lead_protocol.store.object_store import ObjectStore
from lead_protocol.store.open_store import StoreNotConfigured
from lead_protocol.store.open_store import open_store as open_named_store
from lead_trainer.errors import BadConfig


def open_store(environ: Mapping[str, str]) -> ObjectStore:
    """Returns the store that LEAD_STORE_URL names; raises BadConfig naming the variable or file that is wrong."""
    try:
        return open_named_store(environ)
    except StoreNotConfigured as error:
        raise BadConfig(str(error)) from error
