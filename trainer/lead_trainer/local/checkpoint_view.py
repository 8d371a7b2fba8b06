"""A local run's checkpoints under their own file names, directly in its `logdir`.

The checkpoints themselves lie in the run's store. A folder that LEAD filled may be trained on in, so only links that
this view made are ever removed, and it removes all of them in time, whatever a recipe calls its files: a link that
stayed would keep the bytes of a checkpoint that retention has deleted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lead_protocol.manifests import CheckpointManifest
from lead_protocol.object_keys import InstanceKeys
from lead_protocol.store.folder import FolderStore
from lead_trainer.engine.checkpoints.instances import instance_manifests, instances
from lead_trainer.engine.checkpoints.manifest_listing import model_file_name
from lead_trainer.local.shown_files import ShownFiles

SHOWN_KEY = "shown.json"


@dataclass(frozen=True)
class CheckpointView:
    """Hard links to the files of checkpoints of an epoch's end.

    Where a recipe has `files.kept_epochs`: of the newest checkpoint, and the models of those epochs. Elsewhere of every
    checkpoint that retention keeps.
    """

    logdir: Path
    objects: Path  # the folder of `store`
    store: FolderStore
    keys: InstanceKeys
    kept_epochs: Sequence[int] | None = None

    def show(self, manifest: CheckpointManifest) -> None:
        """Links the files of a checkpoint, then removes those of older ones that need not stay."""
        if manifest.step_in_epoch:
            return
        shown = ShownFiles(self.logdir, self.objects, self.store, SHOWN_KEY)
        links = {name: manifest.files[name].key for name in _own_files(manifest)}
        stay: set[str] = set()
        if self.kept_epochs is None:
            kept = (one for keys in self._instances() for one in instance_manifests(self.store, keys))
            stay = {name for one in kept if not one.step_in_epoch for name in _own_files(one)}
        for_good = {model_file_name(manifest)} if manifest.epoch in (self.kept_epochs or ()) else set()
        shown.show(links, stale=shown.listed() - stay, for_good=for_good)

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

    def _instances(self) -> list[InstanceKeys]:
        """Returns whose checkpoints are shown in the folder: runs of several kinds may share it."""
        return instances(self.store, self.keys.namespace, self.keys.uid)


def _own_files(manifest: CheckpointManifest) -> set[str]:
    return {name for name in manifest.files if not name.startswith("loop_")}
