"""How LEAD's persistent cache becomes cache records, where it has taken the place of a tree's own files.

The records are those of the tree's own files, byte for byte, but for depth: LEAD keeps 8 bits of it, up to 50 m, and
rounds 19 of their 256 values down by one (0.2 m). What LEAD made with keys that no folder of its cache names is taken
only with LEAD's values of these keys: others cannot be detected. Called by `prepare_carla`.
"""

from collections.abc import Sequence
from functools import cache, partial

import cv2
import numpy as np

from lead_trainer.contract.raw_data import SampleKey, SourceFile, SourceTree
from lead_trainer.data.array_block import pack_arrays
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.ingest.persistent_cache import (
    FOLDER_KEYS,
    CachedView,
    folders_of,
    is_listed,
    view_path,
)
from lead_trainer.recipes.lead.ingest.route_tree import FRAME_FILES, VIEWS, RouteTree, frame_path, route_tree
from lead_trainer.recipes.lead.prepare_keys import PreparationKeys
from lead_trainer.recipes.lead.prepare_pictures import Plane, fitted, image, refuse_other_rig
from lead_trainer.recipes.lead.targets.bev_planes import map_window
from lead_trainer.recipes.lead.targets.boxes import BoxRows
from lead_trainer.recipes.lead.targets.label_classes import BOX_COLUMNS, MAP_CLASSES, BoxClass, BoxColumn, Occupancy
from lead_trainer.recipes.lead.targets.occupancy import GRID_HALF_M, occupancy_window
from lead_trainer.recipes.lead.targets.radar import radar_detections

# Keys that make no difference to what an entry holds, or whose difference shows in its folders or values.
_FREE = frozenset({
    *FOLDER_KEYS, "num_radar_sensors", "num_radar_queries", "use_sensor_perburtation", "tp_pop_distance",
    "skip_first_pretrain", "skip_last_pretrain", "skip_first_posttrain", "skip_last_posttrain",
})  # fmt: skip
_EQUAL = ("min_x_meter", "max_x_meter", "min_y_meter", "max_y_meter", "training_used_lidar_steps")
_LABELS = ("use_depth", "use_semantic", "use_bev_semantic")  # which a cache may have beyond what is asked for
_LIDAR_ONE = 65535  # of the stored raster, whose values are counts in parts of hist_max_per_pixel


def routes_of(files: Sequence[SourceFile], keys: PreparationKeys) -> RouteTree:
    """Returns the routes of a tree; raises BadData, or BadConfig, where it can be read from neither files nor cache."""
    routes = route_tree(files, partial(_fitting_folder, files, keys))
    if routes.has_pictures:
        return routes
    if routes.cached_in:
        _refuse_other_labels(keys)
    elif misfit := next((fault for route in routes.routes for fault in _faults(files, route.path, keys)), ""):
        raise BadConfig(f"{misfit}; LEAD's persistent cache is all that is left of this tree's pictures")
    elif routes.has_metas_alone:
        read = [folder for folder in FRAME_FILES if folder not in keys.unread_folders]
        raise BadData(
            f"of {len(routes.routes)} routes only metas are left, as after LEAD's persistent cache was built, and no "
            f"entry of it lies in cache/: put that folder beside data/, or restore results.json and the folders "
            f"{', '.join(read)} of each route"
        )
    return routes


def cache_folder(files: Sequence[SourceFile], sample: SampleKey, keys: PreparationKeys) -> str:
    """Returns where LEAD's persistent cache has a frame that has lost its picture; empty where its files are read."""
    if is_listed(files, frame_path(sample.route, "rgb", sample.frame)):
        return ""
    return _fitting_folder(files, keys, sample.route)


def cached_fields(tree: SourceTree, folder: str, frame: int, keys: PreparationKeys) -> dict[str, bytes]:
    """Returns the fields of both views; raises BadData naming an entry that is missing or holds something else."""
    fields: dict[str, bytes] = {}
    for name, suffix in VIEWS.items():
        if suffix and not keys.use_sensor_perburtation:
            continue
        path = view_path(folder, name, frame)
        view = CachedView.read(tree.read(path), path)
        rows = _box_rows(view, keys)
        clouds = view.clouds(keys.num_radar_sensors) if keys.num_radar_sensors else []
        arrays: dict[str, Plane] = {"boxes": rows, "radar_detections": radar_detections(rows, keys)}
        arrays |= {f"radar{number + 1}": cloud for number, cloud in enumerate(clouds)}
        fields[f"{name}/image"] = image(view.picture(), keys, path)
        fields[f"{name}/planes"] = pack_arrays(_planes(view, keys), compress=True)
        fields[f"{name}/arrays"] = pack_arrays(arrays, compress=False)
    return fields


def _planes(view: CachedView, keys: PreparationKeys) -> dict[str, Plane]:
    """Returns the used planes in the order in which a tree's own files give them."""
    planes: dict[str, Plane] = {}
    if keys.use_bev_semantic:
        classes = _classes(view, "bev_semantic", max(MAP_CLASSES))
        if classes.shape[0] != classes.shape[1]:
            raise _corrupt(view, "bev_semantic", classes)
        planes["map"] = map_window(classes, keys)
    if keys.use_semantic:
        planes["semantic"] = fitted(_classes(view, "semantic"), keys, cv2.INTER_NEAREST, view.path)
    if keys.use_depth:
        planes["depth"] = _classes(view, "depth")
        refuse_other_rig(planes["depth"], keys, view.path)
    if keys.use_bev_semantic:
        occupancy = _classes(view, "bev_occupancy", max(Occupancy))
        if occupancy.shape != (int(2 * GRID_HALF_M * keys.pixels_per_meter),) * 2:
            raise _corrupt(view, "bev_occupancy", occupancy)
        planes["occupancy"] = occupancy_window(occupancy, keys)
    raster = view.plane("lidar_bev")
    if raster.dtype != np.uint16 or raster.shape != (keys.bev_height, keys.bev_width):
        raise _corrupt(view, "lidar_bev", raster)
    planes["lidar"] = np.rint(raster / _LIDAR_ONE * keys.hist_max_per_pixel).astype(np.uint8)
    return planes


def _classes(view: CachedView, field: str, largest: int = 255) -> Plane:
    plane = view.plane(field)
    if plane.dtype != np.uint8 or int(plane.max(initial=0)) > largest:
        raise _corrupt(view, field, plane)
    return plane


def _corrupt(view: CachedView, field: str, plane: Plane) -> BadData:
    largest = int(plane.max(initial=0))
    return BadData(f"file {view.path} holds no valid {field}: found {plane.dtype} of {plane.shape} up to {largest}")


def _box_rows(view: CachedView, keys: PreparationKeys) -> BoxRows:
    """Returns the rows; raises BadData for what no label is: a class beyond the last, a centre outside of the grid."""
    rows = view.boxes((keys.max_num_bbs, BOX_COLUMNS))
    columns = [BoxColumn.X, BoxColumn.Y, BoxColumn.CLASS]
    ends = np.array([keys.bev_width, keys.bev_height, len(BoxClass)])
    if not np.isfinite(rows).all() or (rows[:, columns] < 0).any() or (rows[:, columns] >= ends).any():
        raise BadData(f"file {view.path} holds no valid bboxes: found a value that no box has")
    return rows


def _fitting_folder(files: Sequence[SourceFile], keys: PreparationKeys, route: str) -> str:
    return next((folder for folder in folders_of(files, route) if not _fault(folder, keys)), "")


def _faults(files: Sequence[SourceFile], route: str, keys: PreparationKeys) -> list[str]:
    return [fault for folder in folders_of(files, route) if (fault := _fault(folder, keys))]


def _fault(folder: str, keys: PreparationKeys) -> str:
    """Returns which key the entries below a folder were made with otherwise, empty for none."""
    made = dict(zip(FOLDER_KEYS, folder.split("/")[-len(FOLDER_KEYS) :], strict=True))
    wanted = {key: getattr(keys, key) for key in _EQUAL} | {key: True for key in _LABELS if getattr(keys, key)}
    found = {key: value for key, value in {**wanted, "detect_boxes": True}.items() if made[key] != str(value)}
    return next((f"{key}: found {value}, but {folder} was made with {made[key]}" for key, value in found.items()), "")


@cache
def _leads() -> PreparationKeys:
    return PreparationKeys.of(LeadConfig())


def _refuse_other_labels(keys: PreparationKeys) -> None:
    for key, value in vars(keys).items():
        if key not in _FREE and value != (leads := getattr(_leads(), key)):
            raise BadConfig(
                f"{key}: found {value}, but of this tree only LEAD's persistent cache is left, which is taken as made "
                f"with {leads}; restore the tree's own files to build with another value"
            )
