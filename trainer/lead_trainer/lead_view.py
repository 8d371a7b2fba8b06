"""A local run's newest checkpoint under LEAD's file names, directly in its `logdir`.

The checkpoints themselves lie in the run's store. A folder that LEAD filled may be trained on in, so only files that
this view made are ever removed; it keeps their names in the store.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lead_protocol.manifests import CheckpointManifest
from lead_protocol.object_keys import InstanceKeys
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import ObjectNotFound
from lead_trainer.engine.instances import instance_manifests
from lead_trainer.engine.manifest_listing import model_file_name
from lead_trainer.named_view import link

SHOWN_KEY = "shown.json"
MAX_SHOWN_BYTES = 1024 * 1024
_EPOCH_FILE = re.compile(r"^(model|ema|optimizer|scheduler|scaler|clipper|gradient_steps_skipped)_(\d{4})\.(pth|txt)$")


@dataclass(frozen=True)
class LeadView:
    """Hard links to the files of the newest checkpoint of an epoch's end, and to the models to keep."""

    logdir: Path
    objects: Path  # the folder of `store`
    store: FolderStore
    keys: InstanceKeys
    kept_epochs: Sequence[int] = ()  # at whose end the model file of the epoch before stays, as in LEAD

    def show(self, manifest: CheckpointManifest) -> None:
        """Links the files of a checkpoint, then removes those of older epochs, as LEAD keeps the last only."""
        if manifest.step_in_epoch:
            return
        before = {name for name in self._shown() if (self.logdir / name).exists()}
        names = {name for name in manifest.files if not name.startswith("loop_")}
        self.store.put(SHOWN_KEY, json.dumps(sorted(before | names)).encode())  # first: a kill leaves no file unnamed
        for name in names:
            link(self.objects / manifest.files[name].key, self.logdir / name)
        for name in before - names:
            if _EPOCH_FILE.match(name) and not self._keeps(name):
                (self.logdir / name).unlink()

    def show_newest(self, keys: InstanceKeys) -> None:
        """Links the newest checkpoint, in case the process was killed between its commit and its links."""
        epochs = [manifest for manifest in instance_manifests(self.store, keys) if not manifest.step_in_epoch]
        for manifest in epochs[:1]:  # of those that count: not one that `resume=never` set aside
            self.show(manifest)

    def weights(self) -> tuple[Path, int] | None:
        """Returns the newest shown weights and the epochs they were trained for, None before the first epoch's end."""
        for manifest in instance_manifests(self.store, self.keys):
            if not manifest.step_in_epoch:
                return self.logdir / model_file_name(manifest), manifest.epoch
        return None

    def _shown(self) -> set[str]:
        """Returns the names this view gave; of a run of a version that kept no list, those its manifests have."""
        try:
            return set(json.loads(self.store.get(SHOWN_KEY, max_bytes=MAX_SHOWN_BYTES)))
        except ObjectNotFound:
            return {name for manifest in instance_manifests(self.store, self.keys) for name in manifest.files}

    def _keeps(self, name: str) -> bool:
        part, epoch = name.split(".")[0].rsplit("_", 1)
        return part == "model" and int(epoch) + 1 in self.kept_epochs
