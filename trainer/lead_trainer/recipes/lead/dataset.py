"""LEAD's training samples from a cache: the dict of inputs and targets its `__getitem__` returns, key for key.

Pictures, LiDAR and depth are still as they are stored; `device_work` finishes them once a batch is on its device. One
sample is a pure function of (index, epoch, config.seed) and the cache; several threads may call `load` at once.
"""

import math
from collections.abc import Mapping
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from lead_trainer.contract.samples import Cache, Sample
from lead_trainer.data.array_block import unpack_arrays
from lead_trainer.data.in_shards import RowsInShards
from lead_trainer.data.jpeg_picture import JpegPicture, stored_picture
from lead_trainer.data.sample_order import draw_bucket, hash64, unit_float
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.recipes.lead.augment import augmented
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.data_sources import CARLA, DataSource
from lead_trainer.recipes.lead.dataset_metas import meta_entries, planner_entries
from lead_trainer.recipes.lead.ingest.route_tree import OPTIONAL_FOLDERS
from lead_trainer.recipes.lead.preparation import SOURCE_KEY, STAGES
from lead_trainer.recipes.lead.prepare_keys import PreparationKeys
from lead_trainer.recipes.lead.stage_rows import SKIPS, can_be_cut, stage_rows
from lead_trainer.recipes.lead.targets.bev_planes import painted_map
from lead_trainer.recipes.lead.targets.center_net import center_net_targets
from lead_trainer.recipes.lead.targets.planner import waypoint_indices
from lead_trainer.recipes.lead.targets.radar import radar_inputs
from lead_trainer.recipes.lead.targets.sim2real import (
    SIM2REAL_BEV,
    SIM2REAL_OCCUPANCY,
    SIM2REAL_SEMANTIC,
    sim2real_boxes,
)
from lead_trainer.recipes.lead.targets.view import NORMAL, View
from lead_trainer.recipes.prepare_keys import refuse_other_preparation

DEPTH_CODES = "depth_codes"  # instead of `depth`: (H/4, W/4) u8, all cameras
METRES_8_BIT = 50.0  # depth of the largest 8-bit code
METRES_16_BIT = 96.0
COIN, COLOUR = 1, 2  # independent random streams of one sample


def collection_of(config: LeadConfig, source: DataSource = CARLA) -> str:
    """Returns the bucket collection of a data set that a stage trains on."""
    stage = "pretrain" if config.is_pretraining else "posttrain"
    held_out = source is CARLA and config.hold_out_town13_routes and not config.mixed_data_training
    return f"{'town13_heldout' if held_out else _kinds(config, source)[0]}_{stage}"


def stage_collections(config: LeadConfig, source: DataSource = CARLA) -> tuple[str, ...]:
    """Returns every collection that a stage over the same samples may train on."""
    return tuple(f"{kind}_{stage}" for kind in _kinds(config, source) for stage in STAGES)


def _kinds(config: LeadConfig, source: DataSource) -> tuple[str, ...]:
    """Returns how the names of a data set's collections begin, the usual one first."""
    if source is not CARLA:
        return ("full",)
    if config.mixed_data_training:
        return ("waymo" if config.use_waymo_e2e_data else "navsim",)
    return ("full", "town13_heldout")


class LeadSamples(RowsInShards):
    """The samples of the stage's collection; index is the position among the collection's rows, bucket after bucket."""

    def __init__(self, config: LeadConfig, cache: Cache) -> None:
        refuse_other_cache(config, cache.config)
        cv2.setNumThreads(1)  # the loader's threads share the cores already
        self._config = config
        self._cache = cache
        self._rows = stage_rows(config, cache, collection_of(config))
        self._metas = cache.metas()
        self._waypoints = waypoint_indices(config.num_way_points_prediction, config.waypoints_spacing)

    def __len__(self) -> int:
        """Number of rows of the collection."""
        return len(self._rows.sample)

    def epoch_draw(self, epoch: int) -> npt.NDArray[np.int64]:
        """Returns the drawn rows of one epoch, bucket after bucket."""
        drawn, seed = [], self._config.seed
        for bucket, factor in enumerate(self._rows.mixture):
            members = np.flatnonzero(self._rows.bucket == bucket)
            drawn.append(members[draw_bucket(len(members), factor, seed, epoch, bucket)])
        return np.concatenate(drawn).astype(np.int64)

    def order_epoch(self, epoch: int) -> int:
        """Returns the epoch whose order is used: LEAD's workers replay the first one for ever."""
        return 0 if self._config.compat.fixed_epoch_order else epoch

    def name(self, index: int) -> str:
        """Returns route and frame of a sample, for messages."""
        return f"{self._rows.route[index]} frame {self._rows.frame[index]:04d}"

    def load(self, index: int, epoch: int) -> Sample:
        """Returns one sample, of the perturbated view if the coin of (seed, epoch, sample) chooses it."""
        config = self._config
        coin = unit_float(config.seed, epoch, int(self._rows.sample[index]), COIN)
        perturbed = config.use_sensor_perburtation and coin < config.use_sensor_perburtation_prob
        sample = self.sample(index, perturbed=perturbed)
        if config.use_color_aug:
            stream = int(hash64(config.seed, epoch, int(self._rows.sample[index]), COLOUR))
            sample["rgb"] = augmented(sample["rgb"], stream, config.use_color_aug_prob)
        return sample

    def sample(self, index: int, *, perturbed: bool) -> Sample:
        """Returns one sample of the named view without colour augmentation."""
        config, rows = self._config, self._rows
        meta = self._metas.row(str(rows.route[index]), int(rows.frame[index]))
        view = View(meta["perturbation_translation"], meta["perturbation_rotation"]) if perturbed else NORMAL
        sample: Sample = {
            "source_dataset": CARLA.number,
            "perturbate_sensor": perturbed,
            "index": index,
            "global_index": rows.position(index),
            "bucket_identity": int(rows.bucket[index]),
            "route_number": str(rows.route[index]).rsplit("/", 1)[-1],
            "frame_number": f"{int(rows.frame[index]):04d}",
        }
        sample |= meta_entries(meta)
        if config.use_acceleration:
            sample["acceleration"] = math.hypot(meta["accel_x"] or 0.0, meta["accel_y"] or 0.0)
        try:
            sample |= planner_entries(meta, view, config, self._waypoints)
        except BadData as error:
            raise BadData(f"{self.name(index)}: {error}") from error
        fields = self._cache.fields(int(rows.sample[index]))
        name = "perturbated" if perturbed else "normal"
        sample |= sensor_entries({part: fields[f"{name}/{part}"] for part in ("image", "planes", "arrays")}, config)
        return sample


def refuse_other_cache(config: LeadConfig, prepared: Mapping[str, Any]) -> None:
    """Raises BadConfig for a cache of another data set, and for one that was built with other values."""
    if prepared.get(SOURCE_KEY) != CARLA.name:
        raise BadConfig(f"this cache holds {prepared.get(SOURCE_KEY)} data; set {SOURCE_KEY}: carla when it is built")
    wanted = PreparationKeys.of(config).as_mapping()
    # A cache with radar, a view or a label serves a run without, too.
    wanted = {key: value for key, value in wanted.items() if value or key not in OPTIONAL_FOLDERS}
    if not config.use_radars:
        del wanted["num_radar_sensors"]
    if config.is_pretraining or can_be_cut(config, collection_of(config)):
        wanted = {key: value for key, value in wanted.items() if key not in SKIPS}
    refuse_other_preparation(wanted, prepared)


def sensor_entries(record: Mapping[str, memoryview], config: LeadConfig) -> Sample:
    """Returns the entries that come from one view's record: `rgb` (H, W, 3) and `rasterized_lidar` counts are u8.

    `rgb` may still be a JPEG, to be decoded into its batch.
    """
    planes = unpack_arrays(record["planes"], compressed=True)
    arrays = unpack_arrays(record["arrays"], compressed=False)
    used = np.flatnonzero(config.used_cameras)
    entries: Sample = {"rgb": used_part(stored_picture(record["image"]), config)}
    if not config.LTF:
        entries["rasterized_lidar"] = planes["lidar"][None]
    if config.use_radars:
        sensors = radar_inputs([arrays[f"radar{n + 1}"] for n in range(config.num_radar_sensors)], config)
        entries |= {f"radar{number + 1}": points for number, points in enumerate(sensors)}
        entries |= {"radar": np.concatenate(sensors), "radar_detections": arrays["radar_detections"]}
    if config.use_semantic:
        semantic = planes["semantic"] if config.carla_leaderboard_mode else SIM2REAL_SEMANTIC[planes["semantic"]]
        entries["semantic"] = used_columns(semantic, used, config)
    if config.use_depth:
        codes = planes["depth"]
        if is_usual_depth(codes, config):
            entries[DEPTH_CODES] = codes
        else:
            entries["depth"] = used_columns(depth_metres(codes, config), used, config)
    if config.use_bev_semantic:
        occupancy = planes["occupancy"] if config.carla_leaderboard_mode else SIM2REAL_OCCUPANCY[planes["occupancy"]]
        painted = painted_map(planes["map"], occupancy)
        entries["bev_semantic"] = painted if config.carla_leaderboard_mode else SIM2REAL_BEV[painted]
        entries["hdmap"] = painted if config.compat.painted_hdmap else planes["map"]
    if config.detect_boxes:
        boxes = arrays["boxes"] if config.carla_leaderboard_mode else sim2real_boxes(arrays["boxes"])
        entries |= center_net_targets(boxes, config)
    return entries


def is_usual_depth(codes: npt.NDArray[Any], config: LeadConfig) -> bool:
    """Returns whether depth is stored as LEAD's expert does, which the device can finish for a whole batch."""
    height, width = codes.shape
    return codes.dtype == np.uint8 and (4 * height, 4 * width) == (config.image_height, config.image_width)


def depth_metres(codes: npt.NDArray[Any], config: LeadConfig) -> npt.NDArray[np.float32]:
    """Returns the depth label in metres at picture size from recorded 8- or 16-bit codes of any size.

    Rows that pictures lose are left out after the resize, as in LEAD.
    """
    scaled = codes.astype(np.float32)
    eight_bit = codes.dtype == np.uint8
    metres = scaled / np.float32(255) * np.float32(METRES_8_BIT) if eight_bit else scaled / 65535 * METRES_16_BIT
    height, width = codes.shape
    rows = max(config.image_height, round(height * config.image_width / width))
    if codes.shape != (rows, config.image_width):
        method = cv2.INTER_AREA if width > config.image_width else cv2.INTER_LINEAR
        metres = cv2.resize(metres, (config.image_width, rows), interpolation=method)
    return np.ascontiguousarray(metres[: config.image_height], np.float32)


def used_part(picture: JpegPicture | npt.NDArray[Any], config: LeadConfig) -> JpegPicture | npt.NDArray[Any]:
    """Returns the rows and columns that a model sees; a JPEG of nothing else stays one."""
    used = np.flatnonzero(config.used_cameras)
    if picture.shape[0] <= config.image_height and len(used) == config.num_available_cameras:
        return picture
    return used_columns(np.asarray(picture)[: config.image_height], used, config)


def used_columns(picture: npt.NDArray[Any], used: npt.NDArray[np.int64], config: LeadConfig) -> npt.NDArray[Any]:
    """Returns the columns of the used cameras side by side."""
    if len(used) == config.num_available_cameras:
        return picture
    width = config.image_width // config.num_available_cameras
    return np.concatenate([picture[:, camera * width : (camera + 1) * width] for camera in used], axis=1)
