"""Opens the store of a storage profile with the operator's own credentials."""

from collections.abc import Mapping

from lead_operator.settings import Settings, StorageProfile
from lead_protocol import environment
from lead_protocol.store.credentials_chain import StoreNotConfigured
from lead_protocol.store.object_store import ObjectStore
from lead_protocol.store.open_store import open_store
from lead_protocol.store.s3_target import S3Limits

LIMITS = S3Limits(connect_s=3.0, read_s=5.0, total_s=10.0, longest_pause_s=2.0)


def open_profile_store(profile: StorageProfile, settings: Settings, limits: S3Limits = LIMITS) -> ObjectStore:
    """Opens a storage profile with the operator's own credentials; raises StoreError where they are missing."""
    environ = store_environment(profile)
    folder = settings.credentials_dir / profile.name
    keys = [key for key in ("access-key", "secret-key") if not (folder / key).exists()]
    if len(keys) == 1:
        raise _no_secret(profile, keys)
    try:
        return open_store(environ, credentials_dir=folder, limits=limits)
    except StoreNotConfigured as error:
        if not keys or not profile.operator_secret:
            raise
        raise _no_secret(profile, keys) from error


def store_environment(profile: StorageProfile) -> Mapping[str, str]:
    """Returns the variables by which `open_store` finds a profile's store."""
    return {
        environment.STORE_URL: profile.url,
        environment.STORE_ENDPOINT: profile.endpoint,
        environment.STORE_SECURE: "true" if profile.secure else "false",
        environment.STORE_REGION: profile.region,
        environment.STORE_ADDRESSING: profile.addressing,
    }


def _no_secret(profile: StorageProfile, keys: list[str]) -> StoreNotConfigured:
    """Returns the error that names the Secret to create, by which people know it, not the mounted folder."""
    namespace, _, name = profile.operator_secret.rpartition("/")
    where = f"Secret {name or '(operatorSecret)'} in namespace {namespace or 'of the operator'}"
    return StoreNotConfigured(
        f"storage profile {profile.name}: no key {' and no key '.join(keys)} in {where}; create it with the keys "
        "access-key and secret-key (and ca.crt, where the store's certificate needs one)"
    )
