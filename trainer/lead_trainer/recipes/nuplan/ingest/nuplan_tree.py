"""Where the files of a nuPlan tree lie: logs, blobs and maps, as unpacked by nuPlan's page or put together by hand.

Logs are `…/splits/<split>/*.db` or, as the archives unpack, `…/data/cache/<split>/*.db`. Blobs lie anywhere, in a
folder named like the log and one named like the channel. Maps are `…/nuplan-maps-v1.0.json` and beside it
`<city>/<version>/map.gpkg`; a tree without them gives samples without labels of segmentation.
"""

import re
import threading
import weakref
from collections.abc import Mapping

import structlog

from lead_trainer.contract.config_values import near_matches
from lead_trainer.contract.raw_data import SourceTree
from lead_trainer.data.raw_json import raw_json
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.recipes.nuplan.ingest.city_map import CityMap, read_city_map
from lead_trainer.recipes.nuplan.ingest.log_tables import Log, read_log

logger = structlog.get_logger(__name__)

MAPS = "nuplan-maps-v1.0.json"
_DATABASE = re.compile(r"(?:^|/)(?:splits|data/cache)/([^/]+)/([^/]+)\.db$")
_BLOB = re.compile(r"(?:^|/)([^/]+/[^/]+/[^/]+\.(?:jpg|jpeg|pcd))$", re.IGNORECASE)
_LEFT_BESIDE = ("-wal", "-journal")  # changes of a database that are not in it yet


class NuplanTree:
    """The logs, blobs and maps of a source tree; what is read is kept."""

    def __init__(self, tree: SourceTree) -> None:
        self._lock = threading.RLock()
        self._logs: dict[str, Log] = {}
        self._maps: dict[str, CityMap] = {}
        self._databases: dict[str, dict[str, str]] = {}
        self._blobs: dict[str, str] = {}
        self._left: dict[str, str] = {}
        self._index: str | None = None
        self._versions: Mapping[str, str] | None = None
        self._tree = tree
        sizes = {}
        for file in tree.files():
            sizes[file.path] = file.size
            if found := _DATABASE.search(file.path):
                self._databases.setdefault(found[1], {})[found[2]] = file.path
            elif found := _BLOB.search(file.path):
                self._blobs[found[1]] = file.path
            elif file.path.rpartition("/")[2] == MAPS:
                self._index = file.path
            elif file.path.endswith(_LEFT_BESIDE) and file.size:
                self._left[file.path.rpartition("-")[0]] = file.path
        self._sizes = sizes

    def splits(self) -> list[str]:
        """Returns the folders that hold logs."""
        return sorted(self._databases)

    def logs_of(self, split: str) -> list[str]:
        """Returns the names of the files of a split's logs; raises BadConfig for a split that is not there."""
        if not self._databases:
            raise BadData(
                "the tree has no log of nuPlan: expected nuplan-v1.1/splits/<split>/*.db or data/cache/<split>/*.db; "
                "correct the folder"
            )
        if split and split not in self._databases:
            hint = near_matches(split, self.splits()) or f"; expected one of {', '.join(self.splits())}"
            raise BadConfig(f"data.split: found {split!r}{hint}")
        if not split and len(self._databases) > 1:
            raise BadConfig(f"data.split: is not set, and the tree has {', '.join(self.splits())}; name one")
        return sorted(self._databases[split or self.splits()[0]])

    def log(self, split: str, name: str) -> Log:
        """Returns a log; raises BadData naming its file where it cannot be read."""
        split = split or self.splits()[0]
        path = self._databases[split][name]
        with self._lock:
            if path not in self._logs:
                if path in self._left:
                    raise BadData(
                        f"{self._left[path]}: holds changes that are not in {path} yet; open the database once with "
                        "sqlite3 and close it, or fetch both again"
                    )
                found = read_log(self._tree.local_file(path), path)
                if found.name != name:
                    raise BadData(
                        f"{path}: table log: logfile: found {found.name!r}, expected {name!r}; fetch it again"
                    )
                self._logs[path] = found
            return self._logs[path]

    def blob(self, file: str) -> str | None:
        """Returns the path of a cloud or picture by the name that its table has for it, None where it is not there."""
        return self._blobs.get("/".join(file.split("/")[-3:]))

    def read(self, path: str) -> bytes:
        """Returns one file's bytes."""
        return self._tree.read(path)

    def size(self, path: str) -> int:
        """Returns the size of a file in bytes."""
        return self._sizes[path]

    @property
    def has_maps(self) -> bool:
        """Whether the tree has maps at all."""
        return self._index is not None

    def cities(self) -> list[str]:
        """Returns the cities that have a map."""
        return sorted(self._map_versions())

    def map_path(self, city: str) -> str:
        """Returns the path of a city's map; raises BadData where it is not there."""
        versions = self._map_versions()
        if city not in versions:
            raise BadData(
                f"{self._index}: has no city {city!r}, only {', '.join(versions)}; fetch maps and logs of one version"
            )
        folder = (self._index or "").rpartition("/")[0]
        path = f"{folder}/{city}/{versions[city]}/map.gpkg".lstrip("/")
        if path not in self._sizes:
            raise BadData(
                f"file {path} is missing; fetch nuplan-maps-v1.0 again, or remove {self._index} to do without"
            )
        return path

    def city_map(self, city: str) -> CityMap | None:
        """Returns the map of a city, None where the tree has no maps at all."""
        if not self.has_maps:
            return None
        with self._lock:
            if city not in self._maps:
                path = self.map_path(city)
                self._maps[city] = read_city_map(self._tree.local_file(path), path)
            return self._maps[city]

    def _map_versions(self) -> Mapping[str, str]:
        if self._versions is None:
            path = self._index or MAPS
            try:
                document = raw_json(self._tree.read(path))
            except ValueError as error:
                raise BadData(f"{path}: is no JSON: {error}; fetch it again") from error
            if not isinstance(document, dict):
                raise BadData(
                    f"{path}: found a {type(document).__name__}, expected an object of cities; fetch it again"
                )
            versions = {}
            for city, entry in document.items():
                version = entry.get("version") if isinstance(entry, dict) else None
                if not isinstance(version, str) or "/" in version or "/" in city:
                    raise BadData(f"{path}: {city}: version: found {version!r}, expected a text; fetch it again")
                versions[city] = version
            self._versions = versions
        return self._versions


_LOCK = threading.Lock()
_OPENED: "weakref.WeakKeyDictionary[SourceTree, NuplanTree]" = weakref.WeakKeyDictionary()


def open_tree(tree: SourceTree) -> NuplanTree:
    """Returns the tree's logs, blobs and maps, opened once a process."""
    with _LOCK:
        if tree not in _OPENED:
            _OPENED[tree] = NuplanTree(tree)
        return _OPENED[tree]
