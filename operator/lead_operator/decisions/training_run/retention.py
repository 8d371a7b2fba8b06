"""Which objects of a stage instance go: checkpoints its policy lets go, and data that no manifest names. Pure.

Manifests were written by pods and are hostile: nothing outside the instance's own checkpoints is ever named here.
A corrupt checkpoint is evidence: it is kept until `keep_last` newer ones that were not found corrupt have been
committed. Manifests that do not fit their key are left to people.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lead_protocol.checkpoint_retention import FEWEST_CHECKPOINTS, expendable
from lead_protocol.manifests import CheckpointManifest
from lead_protocol.object_keys import InstanceKeys, position_of

NONE = (-1, -1)  # the position of what is not named like a manifest
_DATA = re.compile(r"^(?P<step>\d{12})/(?P<attempt>\d{4,9})-[A-Za-z0-9]{1,64}/[A-Za-z0-9._-]{1,200}$")


@dataclass(frozen=True)
class Removal:
    """One checkpoint that goes: its manifest first, so that a manifest that stands always has its objects."""

    manifest_key: str
    data_keys: tuple[str, ...]
    record_key: str = ""  # of a corrupt one: its quarantine record is removed last


def decide_removals(
    keys: InstanceKeys,
    manifests: Mapping[str, CheckpointManifest],
    *,
    keep_last: int,
    keep_best: int,
    live_attempt: int,
    keep_every_epochs: int = 0,
) -> tuple[Removal, ...]:
    """Returns which of an instance's checkpoints go, oldest first; `manifests` by key, without quarantined ones.

    An attempt newer than the live one means that we know too little: then nothing goes.
    """
    own = {key: manifest for key, manifest in manifests.items() if _fits(keys, key, manifest)}
    if any(manifest.attempt > live_attempt for manifest in own.values()):
        return ()
    newest_first = sorted(own, key=_position, reverse=True)
    let_go = expendable(
        [own[key] for key in newest_first],
        keep_last=keep_last,
        keep_best=keep_best,
        keep_every_epochs=keep_every_epochs,
    )
    gone = {manifest.step for manifest in let_go}
    kept_data = {
        file.key
        for key, manifest in manifests.items()
        if key not in own or manifest.step not in gone
        for file in manifest.files.values()
    }
    return tuple(
        Removal(key, tuple(data for data in _data_keys(keys, own[key]) if data not in kept_data))
        for key in reversed(newest_first)
        if own[key].step in gone
    )


def outlived(quarantined: Sequence[str], manifests: Iterable[str], keep_last: int) -> tuple[str, ...]:
    """Returns the corrupt checkpoints that `keep_last` newer ones have replaced, never fewer than two.

    Both are manifest keys of one instance.
    """
    standing = sorted(map(_position, manifests), reverse=True)
    enough = max(keep_last, FEWEST_CHECKPOINTS)
    return tuple(key for key in quarantined if len(standing) >= enough and standing[enough - 1] > _position(key) > NONE)


def remove_corrupt(
    keys: InstanceKeys, manifest_key: str, corrupt: CheckpointManifest | None, valid: Iterable[CheckpointManifest]
) -> Removal:
    """Returns how a corrupt checkpoint is removed; data of an unparsable manifest are found as orphans."""
    named = {file.key for manifest in valid for file in manifest.files.values()}
    data = _data_keys(keys, corrupt) if corrupt is not None and _fits(keys, manifest_key, corrupt) else []
    record_key = keys.quarantine_prefix + manifest_key.removeprefix(keys.manifests_prefix)
    return Removal(manifest_key, tuple(key for key in data if key not in named), record_key)


def find_orphans(
    keys: InstanceKeys, manifests: Mapping[str, CheckpointManifest], data_keys: Iterable[str], *, live_attempt: int
) -> tuple[str, ...]:
    """Returns the data objects of an instance that is done which no manifest names and no attempt will commit.

    `manifests` holds all of them, quarantined ones too. An attempt's steps only grow, so what the live one left behind
    below its newest commit (an operator was killed between a manifest and its data) will not be committed any more.
    """
    named = {file.key for manifest in manifests.values() for file in manifest.files.values()}
    newest_step = max((m.step for m in manifests.values() if m.attempt == live_attempt), default=0)
    found = []
    for key in data_keys:
        match = _DATA.match(key.removeprefix(keys.checkpoints_prefix))
        if key in named or match is None:
            continue
        attempt, step = int(match["attempt"]), int(match["step"])
        if attempt < live_attempt or (attempt == live_attempt and step < newest_step):
            found.append(key)
    return tuple(found)


def _fits(keys: InstanceKeys, key: str, manifest: CheckpointManifest) -> bool:
    owner = (manifest.run_uid, manifest.stage, manifest.seed)
    below = owner == (keys.uid, keys.stage, keys.seed) and key.startswith(keys.manifests_prefix)
    return below and _position(key)[0] == manifest.step


def _position(key: str) -> tuple[int, int]:
    return position_of(key) or NONE


def _data_keys(keys: InstanceKeys, manifest: CheckpointManifest) -> list[str]:
    prefix = keys.checkpoint(manifest.step, manifest.attempt, manifest.nonce)
    found = {file.key for file in manifest.files.values() if file.key.startswith(prefix)}
    return sorted(key for key in found if _DATA.match(key.removeprefix(keys.checkpoints_prefix)))
