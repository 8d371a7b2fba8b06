"""The weights of a local run under the names its recipe shows them by: newest, best and what else shall stay.

For recipes that name files by their config; the checkpoints themselves lie in the run's store, as always.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lead_protocol.checkpoint_retention import ranked
from lead_protocol.manifests import CheckpointManifest
from lead_protocol.object_keys import InstanceKeys
from lead_protocol.store.folder import FolderStore
from lead_trainer.engine.instances import instance_manifests
from lead_trainer.recipes.recipe import NamesFiles


@dataclass(frozen=True)
class NamedView:
    """Hard links in `logdir` to the weights of checkpoints at epochs' ends; averaged weights where there are any.

    Their config lies beside them, for whoever evaluates them or trains on from them: as `config.json`, which is that of
    the folder's last run, and under a name of their own.
    """

    logdir: Path
    objects: Path  # the folder of `store`
    store: FolderStore
    recipe: NamesFiles
    config: Any
    keys: InstanceKeys

    def show(self, manifest: CheckpointManifest) -> None:
        """Links a checkpoint under its names; after a kill the next call heals what the last one left out."""
        if manifest.step_in_epoch:
            return
        best = ranked(instance_manifests(self.store, self.keys))[:1]
        is_best = bool(best) and best[0].step == manifest.step
        self._show(manifest, self.recipe.shown_names(self.config, manifest.epoch - 1, newest=True, best=is_best))

    def show_newest(self, keys: InstanceKeys) -> None:
        """Links the newest checkpoint and the best one again."""
        manifests = [manifest for manifest in instance_manifests(self.store, keys) if not manifest.step_in_epoch]
        for number, manifest in enumerate(manifests[:1] + ranked(manifests)[:1]):
            names = self.recipe.shown_names(self.config, manifest.epoch - 1, newest=number == 0, best=number == 1)
            self._show(manifest, names)

    def weights(self) -> tuple[Path, int] | None:
        """Returns the best weights that are shown and the epochs they were trained for, None before any are."""
        manifests = [manifest for manifest in instance_manifests(self.store, self.keys) if not manifest.step_in_epoch]
        for manifest in ranked(manifests)[:1]:
            for name in self.recipe.shown_names(self.config, manifest.epoch - 1, newest=False, best=True):
                return self.logdir / name, manifest.epoch
        return None

    def _show(self, manifest: CheckpointManifest, shown: Sequence[str]) -> None:
        names = self.recipe.file_names(self.config, manifest.epoch - 1)
        stored = manifest.files.get(names.get("ema", "")) or manifest.files[names["model"]]
        for name in shown:
            link(self.objects / stored.key, self.logdir / name)
        for name in {"config.json", *map(own_config_name, shown)} if shown else ():
            link(self.objects / manifest.files["config.json"].key, self.logdir / name)


def config_beside(weights: Path) -> Path:
    """Returns where the config of a file of weights lies: its own run's, where there is one, else the folder's."""
    own = weights.with_name(own_config_name(weights.name))
    return own if own.is_file() else weights.with_name("config.json")


def own_config_name(shown: str) -> str:
    """Returns the name of the config of weights shown as `{kind}_seed{seed}_{word}.pt`."""
    return f"{shown.rpartition('_')[0]}_config.json"


def link(source: Path, target: Path) -> None:
    """Makes `target` a hard link to `source`, in place of whatever it was."""
    part = target.with_name(f".{target.name}.{os.getpid()}")
    part.unlink(missing_ok=True)
    os.link(source, part)
    part.replace(target)
    part.unlink(missing_ok=True)  # renaming one link over another of the same file leaves both
