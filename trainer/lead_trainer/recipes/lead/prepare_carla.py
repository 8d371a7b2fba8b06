"""How a raw LEAD tree becomes cache records: LEAD's filter and labels, each view of each frame prepared once.

A record holds for `normal` and, with use_sensor_perburtation, `perturbated` each: `image` (the camera JPEG as
recorded), `planes` (semantic, depth as recorded, map, occupancy, LiDAR counts in one lz4 block) and `arrays` (box rows,
radar detections, radar points, raw). What a run does not read is left out.
Called by `preparation`; it reads nothing of the config but `PreparationKeys`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import structlog

from lead_trainer.contract.raw_data import Bucket, Collection, SampleKey, Scan, SourceTree
from lead_trainer.data.array_block import pack_arrays
from lead_trainer.data.ordered_pool import ordered_map
from lead_trainer.errors import BadData
from lead_trainer.recipes.lead.buckets import (
    KEPT_UNKNOWN_SCENARIO,
    FilledCollection,
    JudgedRoute,
    fill_collection,
    fill_mined,
    judge_routes,
    verdicts,
    without_incomplete,
)
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.ingest.frame_files import decode_lidar, decode_plane, decode_radar
from lead_trainer.recipes.lead.ingest.plain_pickle import read_plain
from lead_trainer.recipes.lead.ingest.route_tree import VIEWS, frame_path
from lead_trainer.recipes.lead.prepare_cached import cache_folder, cached_fields, routes_of
from lead_trainer.recipes.lead.prepare_keys import PreparationKeys
from lead_trainer.recipes.lead.prepare_metas import meta_row, meta_table, scenario_type
from lead_trainer.recipes.lead.prepare_pictures import Plane, fitted, image, refuse_other_rig
from lead_trainer.recipes.lead.sim2real_buckets import MINED, MinedFrame, Rule, bucket_of
from lead_trainer.recipes.lead.targets.bev_planes import lidar_counts, map_plane
from lead_trainer.recipes.lead.targets.boxes import SceneFacts, box_rows
from lead_trainer.recipes.lead.targets.occupancy import occupancy_plane
from lead_trainer.recipes.lead.targets.radar import radar_detections
from lead_trainer.recipes.lead.targets.view import NORMAL, View

SCAN_THREADS = 16  # readers of metas and boxes, where a collection needs them
log = structlog.get_logger(__name__)
MAP_CLASS_COUNT = 9


class CarlaPreparation:
    """LEAD's preparation of CARLA routes; pure in (tree, keys)."""

    def keys(self, config: LeadConfig) -> Mapping[str, Any]:
        """Returns the values of `config` that the preparation reads."""
        return PreparationKeys.of(config).as_mapping()

    def scan(self, tree: SourceTree, config: Mapping[str, Any], collections: Sequence[str]) -> Scan:
        """Judges every route and fills the named collections."""
        keys = PreparationKeys.parse(config)
        routes = routes_of(tree.files(), keys)
        judged = without_incomplete(judge_routes(tree, routes), routes, keys, collections)
        unknown = Counter(v.route.split("/")[1] for v in verdicts(judged) if v.reason == KEPT_UNKNOWN_SCENARIO)
        for scenario, count in sorted(unknown.items()):
            log.warning(f"scenario {scenario} is not in LEAD's list; its {count} routes are used, numbered like NA")
        filled = [_filled(tree, name, judged, config) for name in sorted(set(collections))]
        drawn = {key for collection in filled for bucket in collection.buckets for key in bucket}
        samples = tuple(sorted(drawn, key=lambda key: (key.route, key.frame)))
        position = {key: index for index, key in enumerate(samples)}
        return Scan(
            verdicts=verdicts(judged),
            samples=samples,
            collections=tuple(
                Collection(
                    name=collection.name,
                    buckets=tuple(
                        Bucket(name, np.array([position[key] for key in rows], np.int64))
                        for name, rows in zip(collection.bucket_names, collection.buckets, strict=True)
                    ),
                    mixture=collection.mixture,
                    counters=vars(collection.counters),
                )
                for collection in filled
            ),
            estimated_bytes=np.array([routes.frame_bytes(key.route, key.frame) for key in samples], np.int64),
        )

    def record(self, tree: SourceTree, config: Mapping[str, Any], sample: SampleKey) -> Mapping[str, bytes]:
        """Returns the fields of both views; raises BadData naming file, route and frame."""
        try:
            return _fields(tree, PreparationKeys.parse(config), sample)
        except BadData as error:
            where = "" if sample.route in str(error) else f"{sample.route} frame {sample.frame:04d}: "
            raise BadData(f"{where}{error}; restore the file, or remove the whole route") from error

    def route_metas(self, tree: SourceTree, config: Mapping[str, Any], route: str, frames: Sequence[int]) -> pa.Table:
        """Returns one row a frame of the ego metas."""
        distance = PreparationKeys.parse(config).tp_pop_distance
        rows = [
            meta_row(read_meta(tree, route, frame), frame, distance, frame_path(route, "metas", frame))
            for frame in frames
        ]
        return meta_table(rows)


def _filled(tree: SourceTree, name: str, routes: Sequence[JudgedRoute], config: Mapping[str, Any]) -> FilledCollection:
    if name not in MINED:
        return fill_collection(name, routes, config)
    distance = float(config["tp_pop_distance"])

    def buckets_of(frames: Sequence[SampleKey], rules: Sequence[Rule]) -> Iterable[int]:
        def mined(key: SampleKey) -> int:
            path = frame_path(key.route, "bboxes", key.frame)
            frame = MinedFrame(read_meta(tree, key.route, key.frame), read_plain(tree.read(path), path), distance)
            return bucket_of(rules, frame, frame_path(key.route, "metas", key.frame))

        return ordered_map(mined, frames, SCAN_THREADS)

    return fill_mined(name, routes, config, buckets_of)


def _fields(tree: SourceTree, keys: PreparationKeys, sample: SampleKey) -> dict[str, bytes]:
    if folder := cache_folder(tree.files(), sample, keys):
        return cached_fields(tree, folder, sample.frame, keys)
    meta = read_meta(tree, sample.route, sample.frame)
    boxes_path, lidar_path = (frame_path(sample.route, folder, sample.frame) for folder in ("bboxes", "lidar"))
    boxes = read_plain(tree.read(boxes_path), boxes_path)
    lidar = decode_lidar(tree.read(lidar_path), lidar_path)
    fields: dict[str, bytes] = {}
    for name, suffix in VIEWS.items():
        if suffix and not keys.use_sensor_perburtation:
            continue
        try:
            view = View(meta["perturbation_translation"], meta["perturbation_rotation"]) if suffix else NORMAL
            scene = scene_facts(meta)
            rows = box_rows(boxes, scene, view, keys)
            occupancy = {"occupancy": occupancy_plane(boxes, scene, view, keys)} if keys.use_bev_semantic else {}
        except (KeyError, TypeError, IndexError, ValueError, AttributeError, OverflowError) as error:
            raise BadData(f"file {boxes_path}, or the frame's meta, lacks a valid field: {error!r}") from error
        planes = _sensor_planes(tree, sample, suffix, keys)
        planes |= {**occupancy, "lidar": lidar_counts(lidar, view, keys)}
        arrays: dict[str, Plane] = {"boxes": rows, "radar_detections": radar_detections(rows, keys)}
        if keys.num_radar_sensors:
            radar_path = frame_path(sample.route, f"radar{suffix}", sample.frame)
            clouds = decode_radar(tree.read(radar_path), radar_path, keys.num_radar_sensors)
            arrays |= {f"radar{number + 1}": cloud for number, cloud in enumerate(clouds)}
        picture_path = frame_path(sample.route, f"rgb{suffix}", sample.frame)
        fields[f"{name}/image"] = image(tree.read(picture_path), keys, picture_path)
        fields[f"{name}/planes"] = pack_arrays(planes, compress=True)
        fields[f"{name}/arrays"] = pack_arrays(arrays, compress=False)
    return fields


def read_meta(tree: SourceTree, route: str, frame: int) -> Mapping[str, Any]:
    """Returns the ego meta of one frame."""
    path = frame_path(route, "metas", frame)
    meta = read_plain(tree.read(path), path)
    if not isinstance(meta, dict):
        raise BadData(f"file {path} holds a {type(meta).__name__}, expected a dict of ego fields")
    return meta


def scene_facts(meta: Mapping[str, Any]) -> SceneFacts:
    """Returns what the box labels need of a meta."""
    side = meta["vehicle_door_side"]
    return SceneFacts(
        scenario_type=scenario_type(meta["current_active_scenario_type"], meta["previous_active_scenario_type"]),
        obstacle_ids=frozenset(meta["scenario_obstacles_ids"] or ()),
        door_open=bool(meta["vehicle_opened_door"]),
        door_left=side == "left",
        overhead_light=bool(meta["over_head_traffic_light"]),
        europe_light=bool(meta["europe_traffic_light"]),
    )


def _sensor_planes(tree: SourceTree, sample: SampleKey, suffix: str, keys: PreparationKeys) -> dict[str, Plane]:
    """Returns the used ones of map, semantic and depth planes of a view at the configured sizes, depth as recorded."""
    planes: dict[str, Plane] = {}
    used = {"semantics": keys.use_semantic, "depth": keys.use_depth, "hdmap": keys.use_bev_semantic}
    for folder in (name for name, on in used.items() if on):
        path = frame_path(sample.route, f"{folder}{suffix}", sample.frame)
        planes[folder] = decode_plane(tree.read(path), path)
        if folder != "depth" and planes[folder].dtype != np.uint8:
            raise BadData(f"file {path} holds {planes[folder].dtype}, expected 8 bit")
    result: dict[str, Plane] = {}
    if keys.use_bev_semantic:
        hdmap = planes["hdmap"]
        if hdmap.shape[0] != hdmap.shape[1] or int(hdmap.max(initial=0)) >= MAP_CLASS_COUNT:
            path = frame_path(sample.route, f"hdmap{suffix}", sample.frame)
            raise BadData(
                f"file {path}: shape {hdmap.shape}, largest class {int(hdmap.max())}; expected square and < 9"
            )
        result["map"] = map_plane(hdmap, keys)
    if keys.use_semantic:
        path = frame_path(sample.route, f"semantics{suffix}", sample.frame)
        result["semantic"] = fitted(planes["semantics"], keys, cv2.INTER_NEAREST, path)
    if keys.use_depth:
        refuse_other_rig(planes["depth"], keys, frame_path(sample.route, f"depth{suffix}", sample.frame))
        result["depth"] = planes["depth"]  # codes, which lose digits when they are resized
    return result
