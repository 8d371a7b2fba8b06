"""How a raw tree becomes cache records: a record each sweep that has all its blobs, with labels.

A route is `<log>/<scene>`, a frame the number of its sweep in the log. Records of a scene lie in one shard. Each pod of
a build scans some logs for all of them; beyond these it opens the databases of the scenes that it makes records of.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import structlog

from lead_trainer.contract.preparation import Fields, Preparation
from lead_trainer.contract.raw_data import SampleKey, Scan, SourceTree
from lead_trainer.data.plain_scan import known_collections, plain_scan
from lead_trainer.data.scan_pieces import piece_of
from lead_trainer.recipes.nuplan.bundle_record import rig_text, to_record
from lead_trainer.recipes.nuplan.ingest.log_split import SPLITS, split_of_logs
from lead_trainer.recipes.nuplan.ingest.nuplan_tree import MAPS, open_tree
from lead_trainer.recipes.nuplan.prepare_keys import NuplanKeys, data_keys_of
from lead_trainer.recipes.nuplan.scanned_log import ScannedLog, scan_log
from lead_trainer.recipes.nuplan.sensor_bundle import calibration_hash
from lead_trainer.recipes.nuplan.targets.bundles import agent_counts, bundle_of_sweep, rig_of

logger = structlog.get_logger(__name__)

SECTION = "data"  # of the config, that the preparation reads
_BYTES_A_PIXEL = 0.5  # of a JPEG, for cutting shards


class NuplanPreparation(Preparation):
    """The preparation of nuPlan's logs; pure in (tree, keys)."""

    version = "nuplan-prepare/2"
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
        scanned = {name: ScannedLog.parse(piece_of(self, tree, config, name)) for name in logs.logs_of(keys.split)}
        cities = {name: log.city for name, log in scanned.items() if any(log.clouds.values())}
        for city in sorted(set(cities.values())):
            logs.city_map(city)  # read before processes are forked, which then share it
        if not logs.has_maps:
            logger.warning("the tree has no maps: its samples have no labels of segmentation", expected=MAPS)
        sides = split_of_logs(cities, keys.val_share, keys.split_seed)
        _report_cities(cities, sides)
        rows: dict[str, list[SampleKey]] = {name: [] for name in names}
        size = int(len(keys.cameras) * keys.image_size[0] * keys.image_size[1] * _BYTES_A_PIXEL)
        clouds = {}
        for name, side in sides.items():
            for route, sizes in scanned[name].clouds.items():
                for number, cloud in sizes if side in rows else ():
                    rows[side].append(SampleKey(route, number))
                    clouds[rows[side][-1]] = cloud
        return plain_scan(
            [verdict for log in scanned.values() for verdict in log.verdicts],
            rows,
            lambda key: size + clouds[key],
            routes_together=True,
        )

    def scan_pieces(self, tree: SourceTree, config: Mapping[str, Any]) -> Sequence[str]:
        """Returns the names of the logs."""
        return open_tree(tree).logs_of(keys_of(config).split)

    def scan_piece(self, tree: SourceTree, config: Mapping[str, Any], piece: str) -> bytes:
        """Returns which sweeps of a log are used, and why the others are not."""
        keys, logs = keys_of(config), open_tree(tree)
        return scan_log(logs, logs.log(keys.split, piece), keys).to_json()

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


def _report_cities(cities: Mapping[str, str], sides: Mapping[str, str]) -> None:
    single = sorted({city for city in cities.values() if sum(other == city for other in cities.values()) == 1})
    if single:
        logger.warning("cities with one log are trained on and never validated on", cities=", ".join(single))
    if sides and "val" not in sides.values():
        logger.warning("no log is left for validation; add a second log of a city", logs=len(sides))
