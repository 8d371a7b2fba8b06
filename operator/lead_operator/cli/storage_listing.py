"""Shows people what lies in a storage profile: `lead-operator objects PREFIX`.

Called by `__main__`, mostly through `kubectl exec deploy/lead-operator`, with the operator's own credentials, so that
nobody needs an S3 client or a key to list objects. It only reads; what it prints was written by pods and is parsed
strictly.
"""

from collections.abc import Iterable, Iterator, Mapping

from lead_operator.bucket.checkpoint_gc import read_if_valid
from lead_operator.bucket.profile_store import open_profile_store
from lead_operator.decisions.formatting import format_size
from lead_operator.errors import LeadOperatorError
from lead_operator.near_names import known_profiles
from lead_operator.settings import StorageProfile, read_settings
from lead_protocol.manifests import CheckpointManifest
from lead_protocol.store.object_store import ObjectStore, StoreError

SHA256_DIGITS = 12
_MANIFEST, _QUARANTINE = "/manifest/", "/quarantine/"


class ListingError(LeadOperatorError):
    """Nothing can be shown; the message names profile, prefix and what to check."""


def list_objects(environment: Mapping[str, str], prefix: str, profile_name: str) -> Iterator[str]:
    """Yields the lines to print; raises SettingsError for a wrong environment, ListingError for everything else."""
    settings = read_settings(environment)
    profile = settings.storage_profiles.get(profile_name)
    if profile is None:
        known = known_profiles(profile_name, settings.storage_profiles)
        raise ListingError(f"storage profile {profile_name!r} is not defined; {known}; pass --profile NAME")
    try:
        for line in describe_prefix(open_profile_store(profile, settings), key_prefix(profile, prefix)):
            yield "".join(c if c.isprintable() else "?" for c in line)  # names must not steer a terminal
    except StoreError as error:
        raise ListingError(f"storage profile {profile.name} ({profile.url} at {profile.endpoint}): {error}") from error


def key_prefix(profile: StorageProfile, prefix: str) -> str:
    """Returns the key prefix that is meant: status shows whole addresses (s3://…), people copy them."""
    if "://" not in prefix:
        return prefix.removeprefix("/")
    if prefix.rstrip("/") == profile.url:
        return ""
    if not prefix.startswith(f"{profile.url}/"):
        raise ListingError(f"{prefix} is not below storage profile {profile.name} ({profile.url}); pass --profile NAME")
    return prefix.removeprefix(f"{profile.url}/")


def describe_prefix(store: ObjectStore, prefix: str) -> Iterator[str]:
    """Yields one line an object with its size, a sum, and the newest checkpoint manifest in short form."""
    count, size_bytes, manifests = 0, 0, list[str]()
    for info in store.list(prefix):
        yield f"{format_size(info.size):>10}  {info.key}"
        count, size_bytes = count + 1, size_bytes + info.size
        if _MANIFEST in info.key and info.key.endswith(".json"):
            manifests.append(info.key)
    if not count:
        raise ListingError(f"no object lies below {prefix!r} in {store.url}; check namespace and UID in the prefix")
    yield f"{format_size(size_bytes):>10}  in {count} objects below {store.url}/{prefix}"
    newest = _newest(_read_newest_of_each(store, manifests))
    if newest is not None:
        yield ""
        yield from _describe(*newest)


def _read_newest_of_each(store: ObjectStore, keys: Iterable[str]) -> Iterator[tuple[str, CheckpointManifest]]:
    # Keys sort by step, so of each stage instance only the last valid manifest has to be read.
    done: set[str] = set()
    for key in sorted(keys, reverse=True):
        folder = key.rsplit(_MANIFEST, 1)[0]
        if folder in done or store.head(_QUARANTINE.join(key.rsplit(_MANIFEST, 1))) is not None:
            continue
        manifest = read_if_valid(store, key)
        if manifest is not None:
            done.add(folder)
            yield key, manifest


def _newest(found: Iterable[tuple[str, CheckpointManifest]]) -> tuple[str, CheckpointManifest] | None:
    return max(found, key=lambda entry: (entry[1].saved_at, entry[1].step), default=None)


def _describe(key: str, manifest: CheckpointManifest) -> Iterator[str]:
    yield f"newest checkpoint: {key}"
    yield (
        f"  stage {manifest.stage}  seed {manifest.seed}  step {manifest.step}  epoch {manifest.epoch}"
        f"  attempt {manifest.attempt}  saved {manifest.saved_at}"
    )
    for name, file in sorted(manifest.files.items()):
        yield f"  {format_size(file.size):>8}  sha256 {file.sha256[:SHA256_DIGITS]}  {name}"
