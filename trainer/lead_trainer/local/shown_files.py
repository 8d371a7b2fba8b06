"""The hard links that a local run keeps in its folder: how one is made, and the list of those it shall remove again.

The list lies in the run's store. A name is on it from before its link is made until after it is removed, so a kill
leaves no link unlisted, and no file that somebody else put into the folder is ever on it.
"""

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import ObjectCorrupt, ObjectNotFound
from lead_trainer.contract.files import name_fault

log = structlog.get_logger(__name__)

MAX_LIST_BYTES = 1024 * 1024


@dataclass(frozen=True)
class ShownFiles:
    """Links in `logdir` to objects of the store in the folder `objects`; `key` is where their list lies."""

    logdir: Path
    objects: Path
    store: FolderStore
    key: str

    def listed(self) -> set[str]:
        """Returns the names of the links that this run may remove; none, with a warning, of a list that is corrupt."""
        try:
            names = json.loads(self.store.get(self.key, max_bytes=MAX_LIST_BYTES))
        except ObjectNotFound:
            return set()
        except (ValueError, ObjectCorrupt) as error:
            names, fault = None, str(error)
        else:
            fault = "it is no list of file names"
        if not isinstance(names, list) or any(name_fault(name) for name in names):
            log.warning("the list of shown files is corrupt: files of older checkpoints stay until they are removed by "
                        "hand", list=str(self.objects / self.key), reason=fault[:200])  # fmt: skip
            return set()
        return set(names)

    def show(self, links: Mapping[str, str], *, stale: Collection[str] = (), for_good: Collection[str] = ()) -> None:
        """Links objects by name, then removes those of the `stale` names that are listed and not linked again.

        The names `for_good` are not removed, and leave the list: nothing removes them later.
        """
        before = self.listed() - set(for_good)
        gone = (before & set(stale)) - links.keys()
        self._list(before | (links.keys() - set(for_good)))
        for name, key in links.items():
            link(self.objects / key, self.logdir / name)
        for name in gone:
            (self.logdir / name).unlink(missing_ok=True)
        self._list((before | links.keys()) - gone - set(for_good))

    def _list(self, names: Collection[str]) -> None:
        self.store.put(self.key, json.dumps(sorted(names)).encode())


def link(source: Path, target: Path) -> None:
    """Makes `target` a hard link to `source`, in place of whatever it was."""
    part = target.with_name(f".{target.name}.{os.getpid()}")
    part.unlink(missing_ok=True)
    os.link(source, part)
    part.replace(target)
    part.unlink(missing_ok=True)  # renaming one link over another of the same file leaves both
