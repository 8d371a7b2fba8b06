"""The hash of a source's listing, which enters the digest of a cache; called by `build`."""

from collections.abc import Sequence

from lead_protocol.source_listing import ListingHash
from lead_trainer.contract.raw_data import SourceFile


def listing_sha256(files: Sequence[SourceFile]) -> str:
    """Returns the SHA-256 of a source listing: path, size and etag of every file in path order."""
    listing = ListingHash()
    for file in sorted(files, key=lambda file: file.path):
        listing.add(file.path, file.size, file.etag)
    return listing.hexdigest()
