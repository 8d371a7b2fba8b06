"""The weights of a local run under the names its recipe shows them by: newest, best and what else shall stay.

For recipes that name files by their config; the checkpoints themselves lie in the run's store, as always.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lead_protocol.checkpoint_retention import ranked
from lead_protocol.manifests import CheckpointManifest
from lead_protocol.object_keys import InstanceKeys
from lead_protocol.store.folder import FolderStore
from lead_trainer.contract.files import name_fault
from lead_trainer.contract.results import short
from lead_trainer.engine.checkpoints.instances import instance_manifests
from lead_trainer.errors import BadConfig
from lead_trainer.local.shown_files import ShownFiles

CONFIG_FILE = "config.json"


@dataclass(frozen=True)
class NamedView:
    """Hard links in `logdir` to the weights of checkpoints at epochs' ends; averaged weights where there are any.

    Their config lies beside them, for whoever evaluates them or trains on from them: as `config.json`, which is that of
    the folder's last run, and under a name of their own.
    """

    logdir: Path
    objects: Path  # the folder of `store`
    store: FolderStore
    names: Callable[[Any, int, bool, bool], Sequence[str]]  # config, epoch from 0, newest?, best?
    config: Any
    keys: InstanceKeys

    def show(self, manifest: CheckpointManifest) -> None:
        """Links a checkpoint under its names, and removes those of older ones that are neither the newest nor the best.

        After a kill the next call heals what the last one left out.
        """
        if manifest.step_in_epoch:
            return
        best = ranked(instance_manifests(self.store, self.keys))[:1]
        is_best = bool(best) and best[0].step == manifest.step
        self._show(manifest, newest=True, best=is_best)
        shown = self._shown
        stay = {name for one in best for name in self._names(one, newest=False, best=True)}
        stay |= {*self._names(manifest, newest=True, best=is_best)}
        shown.show({}, stale=shown.listed() - stay - {own_config_name(name) for name in stay} - {CONFIG_FILE})

    def show_newest(self, keys: InstanceKeys) -> None:
        """Links the newest checkpoint and the best one again."""
        manifests = [manifest for manifest in instance_manifests(self.store, keys) if not manifest.step_in_epoch]
        for manifest in manifests[:1]:
            self._show(manifest, newest=True, best=False)
        for manifest in ranked(manifests)[:1]:
            self._show(manifest, newest=False, best=True)

    def weights(self) -> tuple[Path, int] | None:
        """Returns the best weights that are shown and the epochs they were trained for, None before any are."""
        manifests = [manifest for manifest in instance_manifests(self.store, self.keys) if not manifest.step_in_epoch]
        for manifest in ranked(manifests)[:1]:
            for name in self._names(manifest, newest=False, best=True):
                return self.logdir / name, manifest.epoch
        return None

    def _show(self, manifest: CheckpointManifest, *, newest: bool, best: bool) -> None:
        shown = self._names(manifest, newest=newest, best=best)
        stored = manifest.files[manifest.parts.get("ema", manifest.parts["model"])]
        configs = {CONFIG_FILE, *map(own_config_name, shown)} if shown else set()
        links = {**dict.fromkeys(configs, manifest.files[CONFIG_FILE].key), **dict.fromkeys(shown, stored.key)}
        lasting = self._names(manifest, newest=False, best=False)
        self._shown.show(links, for_good={*lasting, *map(own_config_name, lasting)})

    def _names(self, manifest: CheckpointManifest, *, newest: bool, best: bool) -> Sequence[str]:
        names = self.names(self.config, manifest.epoch - 1, newest, best)
        if isinstance(names, str) or not isinstance(names, Sequence):
            raise BadConfig(f"files.shown: found {short(names)}, expected a list of file names, [] for none")
        if len(set(names)) < len(names):
            raise BadConfig(f"files.shown: found {short(names)}, expected each name once")
        for name in names:
            fault = name_fault(name) or (
                "is that of the config" if name in (CONFIG_FILE, own_config_name(name)) else ""
            )
            if fault:
                raise BadConfig(f"files.shown: found the name {name!r}, which {fault}")
        return names

    @property
    def _shown(self) -> ShownFiles:
        key = f"shown-{self.keys.name}.json"  # runs of several kinds and seeds may share the folder
        return ShownFiles(self.logdir, self.objects, self.store, key)


def config_beside(weights: Path) -> Path:
    """Returns where the config of a file of weights lies: its own run's, where there is one, else the folder's."""
    own = weights.with_name(own_config_name(weights.name))
    return own if own.is_file() else weights.with_name("config.json")


def own_config_name(shown: str) -> str:
    """Returns the name of the config of weights shown as `{kind}_seed{seed}_{name}.pt`."""
    return f"{shown.rpartition('_')[0]}_config.json"
