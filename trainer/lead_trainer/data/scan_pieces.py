"""What a scan needs of each piece of a raw tree, such as a log: read by one pod of a build instead of by each.

Each pod scans its share of the pieces that the preparation names and stages what it found, by digest; it takes the
others from there. No pod depends on another: where nothing new has come for a while, the one that waits scans on.
Called by `build`; a preparation asks through `piece_of`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lead_protocol.object_keys import CacheKeys
from lead_protocol.store.object_store import ObjectCorrupt, ObjectNotFound, ObjectStore
from lead_trainer.contract.preparation import Preparation
from lead_trainer.contract.raw_data import SourceTree
from lead_trainer.data.build_plan import block_of
from lead_trainer.data.staged_tree import StagedTree
from lead_trainer.errors import BadData

MAX_PIECE_BYTES = 64 * 1024 * 1024
MIN_WAIT_S = 10.0  # without news, before a pod scans what is another's share; at least twice its own slowest piece
POLL_S = 0.5


def piece_of(preparation: Preparation, tree: SourceTree, config: Mapping[str, Any], name: str) -> bytes:
    """Returns what `scan_piece` makes of a piece, by this process or by another pod of the build."""
    held = tree.pieces.get(name) if isinstance(tree, StagedTree) else None
    return preparation.scan_piece(tree, config, name) if held is None else held


def gather_pieces(
    names: Sequence[str], worker: int, parallelism: int, store: ObjectStore, keys: CacheKeys,
    scan: Callable[[str], bytes], at_work: Callable[[], None],
) -> dict[str, bytes]:  # fmt: skip
    """Returns every piece by name; scans the worker's share, and of the others what no pod has staged.

    Raises BadData where other bytes lie under a piece's key, and what `scan` raises.
    """
    found: dict[int, bytes] = {}
    slowest_s = 0.0

    def make(number: int) -> None:
        data, key = scan(names[number]), keys.scan_piece(number)
        if not store.create(key, data):
            raise BadData(f"{store.url}/{key} holds other bytes than this build makes; delete it and build again")
        found[number] = data
        at_work()

    for number in block_of(len(names), worker, parallelism):
        if (held := _staged(store, keys.scan_piece(number))) is not None:
            found[number] = held
            continue
        began = time.monotonic()
        make(number)
        slowest_s = max(slowest_s, time.monotonic() - began)
    news_at = time.monotonic()
    while missing := [number for number in range(len(names)) if number not in found]:
        there = {info.key for info in store.list(keys.scan_prefix)}
        new = [number for number in missing if keys.scan_piece(number) in there]
        found |= {number: data for number in new if (data := _staged(store, keys.scan_piece(number))) is not None}
        if new:
            news_at = time.monotonic()
        elif time.monotonic() - news_at >= max(MIN_WAIT_S, 2 * slowest_s):
            make(missing[0])
        else:
            time.sleep(POLL_S)
        at_work()
    return {name: found[number] for number, name in enumerate(names)}


def _staged(store: ObjectStore, key: str) -> bytes | None:
    """Returns a piece as another pod has staged it, None where it is not there."""
    try:
        return store.get(key, max_bytes=MAX_PIECE_BYTES)
    except ObjectNotFound:
        return None
    except ObjectCorrupt as error:
        raise BadData(f"{store.url}/{key}: {error}; delete it and build again") from error
