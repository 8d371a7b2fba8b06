"""How a raw tree becomes cache records: a record each sweep that has all its blobs, with labels.

A route is `<log>/<scene>`, a frame the number of its sweep in the log. Records of a scene lie in one shard. A log's
database is fetched once by each process that builds; other files are read once, for the record they are part of.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import structlog

from lead_trainer.contract.preparation import Fields, Preparation
from lead_trainer.contract.raw_data import RouteVerdict, SampleKey, Scan, SourceTree
from lead_trainer.data.plain_scan import known_collections, plain_scan
from lead_trainer.errors import BadData
from lead_trainer.recipes.nuplan.bundle_record import rig_text, to_record
from lead_trainer.recipes.nuplan.ingest.log_split import SPLITS, split_of_logs
from lead_trainer.recipes.nuplan.ingest.log_tables import Log
from lead_trainer.recipes.nuplan.ingest.nuplan_tree import MAPS, NuplanTree, open_tree
from lead_trainer.recipes.nuplan.prepare_keys import NuplanKeys, data_keys_of
from lead_trainer.recipes.nuplan.sensor_bundle import calibration_hash
from lead_trainer.recipes.nuplan.targets.bundles import agent_counts, bundle_of_sweep, rig_of, shots_of

logger = structlog.get_logger(__name__)

SECTION = "data"  # of the config, that the preparation reads
KEPT, LEFT_OUT, NO_CLOUD, NO_CAMERA, NO_PICTURE, NO_NEAR = (
    "kept", "scene_at_the_end_of_its_log", "cloud_missing", "camera_missing", "picture_missing",
    "picture_too_far_in_time",
)  # fmt: skip
_BYTES_A_PIXEL = 0.5  # of a JPEG, for cutting shards


class NuplanPreparation(Preparation):
    """The preparation of nuPlan's logs; pure in (tree, keys)."""

    version = "nuplan-prepare/1"
    default_collections: tuple[str, ...] = SPLITS

    def all_collections(self) -> Sequence[str]:
        """Returns the splits."""
        return SPLITS

    def config_keys(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the read values, in the section `data`; `config` holds the recipe's keys and optionally `preset`."""
        return {SECTION: NuplanKeys.of(data_keys_of(config)).as_mapping()}

    def scan(self, tree: SourceTree, config: Mapping[str, Any], collections: Sequence[str]) -> Scan:
        """Fills the named splits with the sweeps that have all their blobs; the others are counted by reason."""
        names, keys, logs = known_collections(collections, SPLITS), keys_of(config), open_tree(tree)
        verdicts: dict[str, list[RouteVerdict]] = {}
        frames: dict[str, dict[str, list[int]]] = {}
        cities = {}
        for name in logs.logs_of(keys.split):
            log = logs.log(keys.split, name)
            verdicts[name], frames[name] = _usable(logs, log, keys)
            if any(frames[name].values()):
                cities[name] = log.city
                logs.city_map(log.city)  # read before processes are forked, which then share it
        if not logs.has_maps:
            logger.warning("the tree has no maps: its samples have no labels of segmentation", expected=MAPS)
        sides = split_of_logs(cities, keys.val_share, keys.split_seed)
        _report_cities(cities, sides)
        rows: dict[str, list[SampleKey]] = {name: [] for name in names}
        size = int(len(keys.cameras) * keys.image_size[0] * keys.image_size[1] * _BYTES_A_PIXEL)
        clouds = {}
        for name, side in sides.items():
            log = logs.log(keys.split, name)
            for route, numbers in frames[name].items():
                for number in numbers if side in rows else ():
                    rows[side].append(SampleKey(route, number))
                    clouds[rows[side][-1]] = logs.size(logs.blob(log.clouds[number]) or "")
        return plain_scan(
            [verdict for name in verdicts for verdict in verdicts[name]],
            rows,
            lambda key: size + clouds[key],
            routes_together=True,
        )

    def record(self, tree: SourceTree, config: Mapping[str, Any], sample: SampleKey) -> Fields:
        """Returns pictures, points and labels of one sweep; raises BadData naming the file."""
        keys, logs = keys_of(config), open_tree(tree)
        log = logs.log(keys.split, sample.route.partition("/")[0])
        return to_record(bundle_of_sweep(logs, log, sample.frame, keys))

    def route_metas(self, tree: SourceTree, config: Mapping[str, Any], route: str, frames: Sequence[int]) -> pa.Table:
        """Returns what is known of each sweep without its record; what a log shares is stored once, by dictionary.

        Columns: frame, timestamp (us), token, agents (boxes of the sample), log, city, drop_flags, channels,
        image_size, calibration, rig (JSON).
        """
        keys, logs = keys_of(config), open_tree(tree)
        log = logs.log(keys.split, route.partition("/")[0])
        rig = rig_of(log, keys)
        drops = "" if logs.has_maps else "segmentation"
        shared = {
            "log": log.name,
            "city": log.city,
            "drop_flags": drops,
            "channels": " ".join(keys.cameras),
            "image_size": " ".join(map(str, keys.image_size)),
            "calibration": calibration_hash(rig["intrinsics"], rig["camera_to_vehicle"], keys.image_size),
            "rig": rig_text(rig),
        }
        zeros = pa.array(np.zeros(len(frames), np.int32))
        return pa.table(
            {
                "frame": pa.array(frames, pa.int32()),
                "timestamp": pa.array(log.timestamps[list(frames)], pa.int64()),
                "token": pa.array([log.tokens[frame] for frame in frames], pa.string()),
                "agents": pa.array(agent_counts(log, frames, keys), pa.int32()),
                **{name: pa.DictionaryArray.from_arrays(zeros, pa.array([text])) for name, text in shared.items()},
            }
        )


def keys_of(config: Mapping[str, Any]) -> NuplanKeys:
    """Returns the keys of a cache's config."""
    return NuplanKeys.parse(config[SECTION])


def _usable(tree: NuplanTree, log: Log, keys: NuplanKeys) -> tuple[list[RouteVerdict], dict[str, list[int]]]:
    """Returns how many sweeps of each scene are used, and why the others are not; and the used ones by route."""
    verdicts, frames = [], {}
    for number, scene in enumerate(log.scenes):
        route = f"{log.name}/{scene.name}"
        if route in frames:
            raise BadData(f"{log.path}: table scene: name {scene.name!r} is there twice; fetch the file again")
        sweeps = [int(sweep) for sweep in log.sweeps_of(number)]
        reasons = {sweep: _reason(tree, log, sweep, keys) for sweep in sweeps}
        if keys.scenes == "valid" and not scene.valid:
            reasons = dict.fromkeys(sweeps, LEFT_OUT)
        frames[route] = [sweep for sweep in sweeps if reasons[sweep] == KEPT]
        for reason in sorted(set(reasons.values())):
            count = sum(found == reason for found in reasons.values())
            verdicts.append(RouteVerdict(route, reason == KEPT, reason, count))
    return verdicts, frames


def _reason(tree: NuplanTree, log: Log, sweep: int, keys: NuplanKeys) -> str:
    """Returns why a sweep is no sample, `kept` where it is one."""
    if tree.blob(log.clouds[sweep]) is None:
        return NO_CLOUD
    shots = shots_of(tree, log, sweep, keys)
    if not isinstance(shots, str):
        return KEPT
    if "has no camera" in shots:
        return NO_CAMERA
    return NO_PICTURE if shots.endswith("is missing") else NO_NEAR


def _report_cities(cities: Mapping[str, str], sides: Mapping[str, str]) -> None:
    single = sorted({city for city in cities.values() if sum(other == city for other in cities.values()) == 1})
    if single:
        logger.warning("cities with one log are trained on and never validated on", cities=", ".join(single))
    if sides and "val" not in sides.values():
        logger.warning("no log is left for validation; add a second log of a city", logs=len(sides))
