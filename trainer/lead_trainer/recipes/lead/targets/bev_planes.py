"""LiDAR raster and map plane of one view on the BEV grid; the grid's rows run along y, its columns along x.

Called by the preparation (counts, map) and when a sample is loaded (painting occupancy over the map).
"""

import numpy as np
import numpy.typing as npt

from lead_trainer.errors import BadConfig
from lead_trainer.recipes.lead.ingest.frame_files import LidarPoints
from lead_trainer.recipes.lead.prepare_keys import PreparationKeys
from lead_trainer.recipes.lead.targets.label_classes import MAP_CLASSES, OCCUPANCY_OFFSET
from lead_trainer.recipes.lead.targets.view import View, rotation

UInt8 = npt.NDArray[np.uint8]
MAP_PIXELS_PER_METER = 2.0  # of the stored hdmap

_MAP_CLASSES = np.array(MAP_CLASSES, np.uint8)


def lidar_counts(points: LidarPoints, view: View, keys: PreparationKeys) -> UInt8:
    """Returns points per pixel, at most hist_max_per_pixel, of the points that are young and low enough."""
    turn = np.eye(3)
    turn[:2, :2] = rotation(view.yaw_rad)
    young = points.xyz[points.age < keys.training_used_lidar_steps]
    moved = (turn.T @ (young - np.array([0.0, view.shift_m, 0.0])).T).T
    low = moved[(moved[:, 2] <= keys.max_height_lidar) & (keys.min_height_lidar <= moved[:, 2])]
    edges = (
        np.linspace(keys.min_x_meter, keys.max_x_meter, keys.bev_width + 1),
        np.linspace(keys.min_y_meter, keys.max_y_meter, keys.bev_height + 1),
    )
    counts = np.histogramdd(low[:, :2], bins=edges)[0]
    return np.ascontiguousarray(np.minimum(counts, keys.hist_max_per_pixel).T, np.uint8)


def map_plane(hdmap: UInt8, keys: PreparationKeys) -> UInt8:
    """Returns the map classes on the BEV grid; `hdmap` is square, centred on the ego, 2 pixels a metre.

    Raises BadConfig where the grid's window is larger than the map.
    """
    return map_window(_MAP_CLASSES[hdmap], keys)


def map_window(classes: UInt8, keys: PreparationKeys) -> UInt8:
    """Returns what `map_plane` does of a map whose pixels are classes already."""
    centre = classes.shape[0] / 2
    reach = centre / MAP_PIXELS_PER_METER
    if max(-keys.min_x_meter, keys.max_x_meter, -keys.min_y_meter, keys.max_y_meter) > reach:
        raise BadConfig(
            f"min_x_meter, max_x_meter, min_y_meter, max_y_meter: the window x {keys.min_x_meter} .. {keys.max_x_meter}"
            f", y {keys.min_y_meter} .. {keys.max_y_meter} reaches beyond the recorded map, which ends {reach:g} m "
            "from the car; make it smaller"
        )
    rows = _source_pixels(keys.min_y_meter, keys.bev_height, centre, keys)
    columns = _source_pixels(keys.min_x_meter, keys.bev_width, centre, keys)
    return classes[np.ix_(rows, columns)]


def painted_map(map_classes: UInt8, occupancy: UInt8) -> UInt8:
    """Returns the BEV label: the map with occupied pixels painted over it."""
    return np.where(occupancy > 0, occupancy + np.uint8(OCCUPANCY_OFFSET), map_classes)


def _source_pixels(start_m: int, count: int, centre: float, keys: PreparationKeys) -> npt.NDArray[np.int64]:
    """Returns, for each BEV pixel along one axis, the stored pixel its centre lies in."""
    metres = start_m + (np.arange(count) + 0.5) / keys.pixels_per_meter
    return np.asarray(np.floor(centre + metres * MAP_PIXELS_PER_METER), np.int64)
