"""How a raw tree becomes cache records: one picture of a scene each, with what the driver did in the metas.

A route is `<split>/<scene>`, a frame its number in the scene. A record holds `image`, a JPEG of `data.image_size`. All
records of a scene lie in one shard, in order, so a window reads its frames from one place.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lead_trainer.contract.preparation import Fields, Preparation
from lead_trainer.contract.raw_data import SampleKey, Scan, SourceTree
from lead_trainer.data.ordered_pool import ordered_map
from lead_trainer.data.plain_scan import known_collections, plain_scan
from lead_trainer.errors import BadData
from lead_trainer.recipes.world.ingest.difficulty import difficulty_of
from lead_trainer.recipes.world.ingest.pictures import Picture, fitted, read_picture, stored
from lead_trainer.recipes.world.ingest.scenes import SPLITS, Scene
from lead_trainer.recipes.world.ingest.sources import FOLDERS, open_source
from lead_trainer.recipes.world.prepare_keys import WorldKeys, data_keys_of

SECTION = "data"  # of the config, that the preparation reads
THREADS = 4  # readers of a scene's pictures for its difficulty
_BYTES_A_PIXEL = 0.75  # of such a JPEG, for cutting shards


class WorldPreparation(Preparation):
    """The preparation of every kind of tree; pure in (tree, keys)."""

    version = "world-prepare/2"
    default_collections: tuple[str, ...] = SPLITS

    def all_collections(self) -> Sequence[str]:
        """Returns the splits."""
        return SPLITS

    def config_keys(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the read values, in the section `data`; `config` holds the recipe's keys and optionally `preset`."""
        return {SECTION: WorldKeys.of(data_keys_of(config)).as_mapping()}

    def reads(self, config: Mapping[str, Any]) -> Sequence[str]:
        """Returns how the paths begin that the chosen kind of tree has, of every kind where it is found out."""
        kind = keys_of(config).dataset
        return [folder for name, folders in FOLDERS.items() if kind in ("auto", name) for folder in folders]

    def scan(self, tree: SourceTree, config: Mapping[str, Any], collections: Sequence[str]) -> Scan:
        """Fills the named splits with every frame of their scenes; a scene without all its pictures is left out."""
        names, keys = known_collections(collections, SPLITS), keys_of(config)
        source = open_source(tree, keys)
        rows: dict[str, list[SampleKey]] = {name: [] for name in names}
        for route, scene in source.scenes.items():
            if scene.split in rows:
                rows[scene.split] += [SampleKey(route, frame) for frame in range(len(scene.files))]
        height, width = keys.image_size
        return plain_scan(
            [verdict for verdict in source.verdicts if verdict.route.partition("/")[0] in rows],
            rows,
            lambda key: int(height * width * _BYTES_A_PIXEL),
            routes_together=True,
        )

    def record(self, tree: SourceTree, config: Mapping[str, Any], sample: SampleKey) -> Fields:
        """Returns the picture of one frame; raises BadData naming the file."""
        keys = keys_of(config)
        path = open_source(tree, keys).scenes[sample.route].files[sample.frame]
        return {"image": stored(tree.read(path), path, keys.image_size, keys.crop)[0]}

    def route_metas(self, tree: SourceTree, config: Mapping[str, Any], route: str, frames: Sequence[int]) -> pa.Table:
        """Returns time and action of each frame of a scene, and what is known of the scene as a whole.

        Columns: frame, timestamp (us), action (4 float32, null for the last frame), location, fps, action_source,
        difficulty.
        """
        keys = keys_of(config)
        source = open_source(tree, keys)
        scene = source.scenes[route]
        actions, stated = source.actions(scene), source.difficulty(scene)
        if len(actions.values) != len(scene.files) - 1:
            raise BadData(f"{route}: found {len(actions.values)} actions for {len(scene.files)} pictures")
        values = [*map(list, actions.values.tolist()), None]
        count = len(frames)
        difficulty = scene_difficulty(tree, scene, keys) if stated is None else stated
        return pa.table(
            {
                "frame": pa.array(frames, pa.int32()),
                "timestamp": pa.array(scene.timestamps[list(frames)], pa.int64()),
                "action": pa.array([values[frame] for frame in frames], pa.list_(pa.float32())),
                "location": pa.array([scene.location] * count, pa.string()),
                "fps": pa.array([scene.fps] * count, pa.float64()),
                "action_source": pa.array([actions.source] * count, pa.string()),
                "difficulty": pa.array([difficulty] * count, pa.float64()),
            }
        )


def keys_of(config: Mapping[str, Any]) -> WorldKeys:
    """Returns the keys of a cache's config."""
    return WorldKeys.parse(config[SECTION])


def scene_difficulty(tree: SourceTree, scene: Scene, keys: WorldKeys) -> float:
    """Returns the difficulty of a scene's pictures at the size of the cache."""

    def picture(path: str) -> Picture:
        return fitted(read_picture(tree.read(path), path), keys.image_size, keys.crop)

    return difficulty_of(ordered_map(picture, scene.files, THREADS))
