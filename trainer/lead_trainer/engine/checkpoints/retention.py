"""Which checkpoints go: all but the newest `keepLast` and the best `keepBest`, never below two.

Called on rank 0 after a commit of `lead train`. The manifest goes first, then its data, so a manifest that stands
always has its objects. Pods have no such object: their credential may not delete, and the operator does it.
"""

from dataclasses import dataclass, field

import structlog
from pydantic import ValidationError

from lead_protocol.checkpoint_retention import expendable
from lead_protocol.job import CheckpointPolicy
from lead_protocol.manifests import CheckpointManifest, read_checkpoint_manifest
from lead_protocol.object_keys import InstanceKeys, position_of
from lead_protocol.store.object_store import ObjectCorrupt, ObjectStore, StoreDenied, StoreError
from lead_trainer.engine.checkpoints.manifest_listing import manifest_keys
from lead_trainer.engine.checkpoints.quarantine import quarantined_positions

log = structlog.get_logger(__name__)


@dataclass
class Retention:
    """Removes what the policy lets go, remembering the manifests it has read."""

    store: ObjectStore
    keys: InstanceKeys
    policy: CheckpointPolicy
    _read: dict[str, CheckpointManifest | None] = field(default_factory=dict)  # None: it cannot be read
    _may_delete: bool = True

    def apply(self) -> list[CheckpointManifest]:
        """Deletes expendable checkpoints and returns them; a store that fails is tried again after the next commit."""
        if not self._may_delete:
            return []
        try:
            return self._apply()
        except StoreDenied as error:
            self._may_delete = False
            log.info("old checkpoints stay: this credential may not delete", error=str(error))
        except StoreError as error:
            log.warning("old checkpoints stay for now", error=str(error))
        return []

    def _apply(self) -> list[CheckpointManifest]:
        bad = quarantined_positions(self.store, self.keys.quarantine_prefix)
        keys = [key for key in manifest_keys(self.store, self.keys.manifests_prefix) if position_of(key) not in bad]
        for key in keys:
            if key not in self._read:
                self._read[key] = self._manifest(key)
        known = {key: manifest for key in keys if (manifest := self._read[key]) is not None}
        gone = expendable(
            list(known.values()),
            keep_last=self.policy.keep_last,
            keep_best=self.policy.keep_best,
            keep_every_epochs=self.policy.keep_every_epochs,
        )
        for key, manifest in known.items():
            if manifest in gone:
                self.store.delete(key)
                for stored in manifest.files.values():
                    self.store.delete(stored.key)
        return gone

    def _manifest(self, key: str) -> CheckpointManifest | None:
        try:
            return read_checkpoint_manifest(self.store, key)
        except (ValidationError, ObjectCorrupt) as error:
            log.warning("a checkpoint is kept: its manifest is corrupt", manifest=key, error=str(error).splitlines()[0])
            return None
