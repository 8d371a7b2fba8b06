"""The event files of a namespace's runs, kept as a folder that TensorBoard reads: `<run>/<stage>-s<seed>/<file>`.

A bucket names runs by UID. The name comes from the record of an instance's first attempt, which pods of the namespace
write: it is shown and decides nothing. Runs of one name, such as one that was created again, get their UIDs behind it.
Event files only grow, so what is new of one is appended: TensorBoard goes on reading where it was.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import structlog

from lead_protocol.object_keys import InstanceKeys, runs_prefix
from lead_protocol.store.object_store import ObjectCorrupt, ObjectInfo, ObjectNotFound, ObjectStore

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_FILE = re.compile(r"events\.out\.tfevents\.[A-Za-z0-9._-]{1,200}")
_INSTANCE = re.compile(r"(?P<stage>[a-z0-9-]{1,63})-s(?P<seed>[0-9]{1,20})")
_MAX_RECORD_BYTES = 4096
_PART_BYTES = 8 * 1024 * 1024
_AFTER_SLASH = "0"  # the letter that follows "/": a LIST after `<folder>0` passes over what is in the folder

log = structlog.get_logger(__name__)


class EventMirror:
    """Copies event files of one namespace's runs to a folder; call `refresh` as often as needed."""

    def __init__(self, store: ObjectStore, namespace: str, folder: Path) -> None:
        self._store, self._namespace, self._folder = store, namespace, folder
        self._names: dict[str, str] = {}  # by UID, of runs whose first record was read
        self._shown: dict[str, str] = {}  # by UID, the folder of a run

    def refresh(self) -> int:
        """Fetches what is new and returns its number of bytes; raises StoreError."""
        found = list(self._instances())
        self._rename({keys.uid: keys for keys in reversed(found)})
        return sum(self._fetch(keys) for keys in found)

    def _instances(self) -> Iterator[InstanceKeys]:
        """Yields the stage instances of all runs; a LIST or two each, however many checkpoints they have."""
        prefix, after = runs_prefix(self._namespace), ""
        while (info := next(iter(self._store.list(prefix, start_after=after)), None)) is not None:
            uid, _, rest = info.key.removeprefix(prefix).partition("/")
            name = rest.partition("/")[0]
            after = f"{prefix}{uid}/{name}{_AFTER_SLASH}"
            instance = _INSTANCE.fullmatch(name)
            if instance is None:
                log.warning("left out: it is no stage of a run", key=info.key)
            else:
                yield InstanceKeys(self._namespace, uid, instance["stage"], int(instance["seed"]))

    def _rename(self, firsts: dict[str, InstanceKeys]) -> None:
        """Gives each run its folder, from one of its instances; one that another run of its name has joined moves."""
        names = {uid: self._name(keys) or uid for uid, keys in firsts.items()}
        often = Counter(names.values())
        for uid, name in names.items():
            shown = name if often[name] == 1 else f"{name} {uid}"
            before = self._shown.get(uid, shown)
            if before != shown and (self._folder / before).is_dir():
                (self._folder / before).rename(self._folder / shown)
            self._shown[uid] = shown

    def _name(self, keys: InstanceKeys) -> str:
        """Returns the name of a run that the record of an instance's first attempt holds, "" for none."""
        if keys.uid not in self._names:
            claim = next(iter(self._store.list(keys.attempts_prefix)), None)
            if claim is None:
                return ""
            self._names[keys.uid] = self._name_in(claim.key)
        return self._names[keys.uid]

    def _name_in(self, key: str) -> str:
        try:
            record = json.loads(self._store.get(key, max_bytes=_MAX_RECORD_BYTES))
        except (ObjectCorrupt, ValueError, RecursionError):
            return ""
        name = record.get("run") if isinstance(record, dict) else None
        return name if isinstance(name, str) and _NAME.fullmatch(name) else ""

    def _fetch(self, keys: InstanceKeys) -> int:
        folder = self._folder / self._shown[keys.uid] / keys.name
        return sum(self._append(info, folder) for info in self._store.list(keys.tensorboard_prefix))

    def _append(self, info: ObjectInfo, folder: Path) -> int:
        path = folder / info.key.rsplit("/", 1)[-1]
        if _FILE.fullmatch(path.name) is None:
            log.warning("left out: it is no event file", key=info.key)
            return 0
        there = path.stat().st_size if path.exists() else 0
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            for at in range(there, info.size, _PART_BYTES):
                try:
                    file.write(self._store.get_range(info.key, at, min(_PART_BYTES, info.size - at)))
                except (ObjectNotFound, ObjectCorrupt):  # the run was removed since
                    return max(0, at - there)
        return max(0, info.size - there)
