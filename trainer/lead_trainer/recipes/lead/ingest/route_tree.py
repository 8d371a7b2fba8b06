"""LEAD's folder layout: which routes a tree has, how many frames each, and where a frame's files are.

Built once from the tree's listing; used by the route filter, the buckets and the preparation. It opens no file.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from lead_trainer.recipes.recipe import SourceFile

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
    """One entry of a scenario folder: a route, or a stray file (LEAD counts both as routes)."""

    path: str  # data/<Scenario>/<route>
    frames: int  # files in bboxes/
    has_results: bool
    has_first_meta: bool


@dataclass(frozen=True)
class RouteTree:
    """Routes in LEAD's order (scenario, then name), and the size of every file."""

    routes: tuple[RouteFolder, ...]
    sizes: dict[str, int] = field(repr=False)

    def frame_bytes(self, route: str, frame: int) -> int:
        """Returns the raw bytes of one frame's files; missing ones count nothing."""
        return sum(self.sizes.get(frame_path(route, folder, frame), 0) for folder in FRAME_FILES)

    @property
    def has_metas_alone(self) -> bool:
        """Whether nothing but metas is left, as LEAD's guide allows once its persistent cache is built."""
        folders = {path.split("/")[3] for path in self.sizes if path.startswith("data/") and path.count("/") == 4}
        return folders == {"metas"}

    def missing_file(self, route: str, frames: Iterable[int], unread: Collection[str]) -> str:
        """Returns the path of the first file that these frames lack outside of `unread` folders, empty for none."""
        folders = [folder for folder in (*FRAME_FILES, "metas") if folder not in unread]
        paths = (frame_path(route, folder, frame) for frame in frames for folder in folders)
        return next((path for path in paths if path not in self.sizes), "")


def frame_path(route: str, folder: str, frame: int) -> str:
    """Returns the path of one file of one frame."""
    suffix = "pkl" if folder == "metas" else FRAME_FILES[folder]
    return f"{route}/{folder}/{frame:04d}.{suffix}"


def route_tree(files: Sequence[SourceFile]) -> RouteTree:
    """Groups a listing into routes; the tree's root is the folder that holds `data/`."""
    frames: dict[tuple[str, str], int] = defaultdict(int)
    paths = {file.path: file.size for file in files}
    for path in paths:
        parts = path.split("/")
        if parts[0] == TREE_FOLDER and len(parts) > 2:
            frames[(parts[1], parts[2])] += len(parts) == 5 and parts[3] == "bboxes"
    routes = []
    for (scenario, name), count in sorted(frames.items()):
        route = f"{TREE_FOLDER}/{scenario}/{name}"
        routes.append(
            RouteFolder(route, count, f"{route}/results.json" in paths, frame_path(route, "metas", 0) in paths)
        )
    return RouteTree(tuple(routes), paths)
