"""LEAD's folder layout: which routes a tree has, how many frames each, and where a frame's files are.

Built once from the tree's listing; used by the route filter, the buckets and the preparation. It opens no file.
In a tree that has lost its pictures, entries of LEAD's persistent cache take the place of a frame's files.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from lead_protocol.source_listing import is_picture
from lead_trainer.contract.raw_data import SourceFile
from lead_trainer.recipes.lead.ingest.persistent_cache import view_path

VIEWS = {"normal": "", "perturbated": "_perturbated"}  # view -> suffix of its folders
TREE_FOLDER = "data"  # below the root of a tree, with its scenarios
FRAME_FILES = {
    "rgb": "jpg",
    "rgb_perturbated": "jpg",
    "semantics": "png",
    "semantics_perturbated": "png",
    "depth": "png",
    "depth_perturbated": "png",
    "hdmap": "png",
    "hdmap_perturbated": "png",
    "lidar": "laz",
    "radar": "npz",
    "radar_perturbated": "npz",
    "bboxes": "pkl",
}
OPTIONAL_FOLDERS = {  # config key -> folders that are read only where it is true
    "use_sensor_perburtation": tuple(folder for folder in FRAME_FILES if folder.endswith("_perturbated")),
    "use_radars": ("radar", "radar_perturbated"),
    "use_semantic": ("semantics", "semantics_perturbated"),
    "use_depth": ("depth", "depth_perturbated"),
    "use_bev_semantic": ("hdmap", "hdmap_perturbated"),
}


@dataclass(frozen=True)
class RouteFolder:
    """One entry of a scenario folder: a route, or another file (LEAD counts both as routes)."""

    path: str  # data/<Scenario>/<route>
    frames: int  # files in bboxes/, or in metas/ where pictures are gone
    has_results: bool
    has_first_meta: bool
    is_cached: bool = False  # LEAD's persistent cache takes the place of its files


@dataclass(frozen=True)
class RouteTree:
    """Routes in LEAD's order (scenario, then name), and the size of every file."""

    routes: tuple[RouteFolder, ...]
    sizes: dict[str, int] = field(repr=False)
    cached_in: dict[str, str] = field(default_factory=dict, repr=False)  # route -> where LEAD's persistent cache has it

    def frame_bytes(self, route: str, frame: int) -> int:
        """Returns the raw bytes of one frame's files; missing ones count nothing."""
        return sum(self.sizes.get(path, 0) for path in self._files(route, frame, ()))

    @property
    def has_pictures(self) -> bool:
        """Whether there is any; without one a tree's own files train nothing."""
        return any(map(is_picture, self.sizes))

    @property
    def has_metas_alone(self) -> bool:
        """Whether nothing but metas is left, as LEAD's guide allows once its persistent cache is built."""
        folders = {path.split("/")[3] for path in self.sizes if path.startswith("data/") and path.count("/") == 4}
        return folders == {"metas"}

    def missing_file(self, route: str, frames: Iterable[int], unread: Collection[str]) -> str:
        """Returns the path of the first file that these frames lack outside of `unread` folders, empty for none."""
        paths = (
            path for frame in frames for path in (*self._files(route, frame, unread), frame_path(route, "metas", frame))
        )
        return next((path for path in paths if path not in self.sizes), "")

    def _files(self, route: str, frame: int, unread: Collection[str]) -> Iterator[str]:
        if folder := self.cached_in.get(route):
            return (view_path(folder, name, frame) for name, suffix in VIEWS.items() if f"rgb{suffix}" not in unread)
        return (frame_path(route, folder, frame) for folder in FRAME_FILES if folder not in unread)


def frame_path(route: str, folder: str, frame: int) -> str:
    """Returns the path of one file of one frame."""
    suffix = "pkl" if folder == "metas" else FRAME_FILES[folder]
    return f"{route}/{folder}/{frame:04d}.{suffix}"


def no_cache(_: str) -> str:
    """For a tree that is read from its own files alone."""
    return ""


def route_tree(files: Sequence[SourceFile], cache_folder: Callable[[str], str] = no_cache) -> RouteTree:
    """Groups a listing into routes; the tree's root is the folder that holds `data/`.

    `cache_folder` returns where LEAD's persistent cache has a route, empty for nowhere; it is asked for a tree without
    pictures alone.
    """
    frames, metas = Counter[str](), Counter[str]()
    paths = {file.path: file.size for file in files}
    for path in paths:
        parts = path.split("/")
        if parts[0] == TREE_FOLDER and len(parts) > 2:
            route, folder = "/".join(parts[:3]), parts[3] if len(parts) == 5 else ""
            frames[route] += folder == "bboxes"
            metas[route] += folder == "metas"
    cached = {} if any(map(is_picture, paths)) else {route: where for route in frames if (where := cache_folder(route))}
    routes = [
        RouteFolder(
            route,
            metas[route] if cached else count,
            f"{route}/results.json" in paths,
            frame_path(route, "metas", 0) in paths,
            route in cached,
        )
        for route, count in sorted(frames.items(), key=lambda entry: entry[0].split("/"))
    ]
    return RouteTree(tuple(routes), paths, cached)
