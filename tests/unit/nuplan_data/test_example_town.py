"""The made-up town is a tree of nuPlan's format whose pictures and clouds show what its boxes say."""

import hashlib
from pathlib import Path

import cv2
import numpy as np
import pytest

from lead_trainer.contract.example_world import example_world
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.errors import BadConfig
from lead_trainer.example_worlds.nuplan.traffic import COLOURS
from lead_trainer.example_worlds.nuplan.tree import ExampleTree, write_example_tree
from lead_trainer.recipes.nuplan.data_keys import LAYERS
from lead_trainer.recipes.nuplan.geometry import inverse, moved, transform
from lead_trainer.recipes.nuplan.ingest.log_tables import CATEGORIES
from lead_trainer.recipes.nuplan.ingest.nuplan_tree import NuplanTree
from lead_trainer.recipes.nuplan.ingest.point_cloud import read_point_cloud
from lead_trainer.recipes.nuplan.lenses import projected
from lead_trainer.recipes.nuplan.targets.boxes import agents_of
from lead_trainer.recipes.nuplan.targets.clouds import in_vehicle
from lead_trainer.recipes.nuplan.targets.grids import map_layer, middles


def digest_of(root: Path) -> dict[str, str]:
    files = [file for file in sorted(root.rglob("*")) if file.is_file()]
    return {str(file.relative_to(root)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_the_same_numbers_write_the_same_files(tmp_path: Path) -> None:
    for folder, seed in (("one", 1), ("two", 1), ("three", 2)):
        write_example_tree(tmp_path / folder, ExampleTree(logs=1, seconds=1, size=(32, 48), cars=1, seed=seed))
    one, two, three = (digest_of(tmp_path / folder) for folder in ("one", "two", "three"))
    assert one == two and one.keys() != three.keys()


def test_example_data_of_the_recipe_is_offered_and_refuses_odd_numbers(tmp_path: Path) -> None:
    world = example_world("nuplan")
    assert world.describe(world.numbers) == "10 logs of two cities with 40 labelled sweeps each"
    with pytest.raises(BadConfig, match="example data: seconds is 0, but must be at least 1"):
        world.to_folder(tmp_path, {**world.numbers, "seconds": 0}, lambda n, of: None)
    assert not list(tmp_path.iterdir())


def test_points_and_pixels_lie_on_the_boxes_and_the_map_is_around_the_car(example: Path) -> None:
    tree = NuplanTree(FolderTree(example))
    hits, seen, kinds = 0, [], set()
    for name in tree.logs_of("mini"):
        log = tree.log("mini", name)
        city = tree.city_map(log.city)
        assert city is not None
        for sweep in (number for number, cloud in enumerate(log.clouds) if tree.blob(cloud)):
            agents, pose = agents_of(log, sweep, 8, 0.5), log.sweep_pose(sweep)
            kinds |= set(agents.categories)
            layers = [
                map_layer(city, layer, np.array([*pose.place[:2], pose.heading]), middles(32.0, 1.6))
                for layer in LAYERS
            ]
            assert layers[0][20, 20] and layers[1][20, 20] and layers[3].any()
            path = tree.blob(log.clouds[sweep]) or ""
            points = in_vehicle(read_point_cloud(tree.read(path), path), log.lidar)
            centre = agents.poses[:, :2]
            near = np.hypot(*(points[:, None, :2] - centre).transpose(2, 0, 1)).min(axis=0)
            hits += int((near[np.hypot(*centre.T) < 15] < 3.0).sum())
            lens, shots = log.lenses["CAM_F0"], log.pictures["CAM_F0"]
            number = log.nearest_picture("CAM_F0", int(log.timestamps[sweep]), 50_000)
            assert number is not None
            shot = log.pose(int(shots.poses[number]))
            places = np.concatenate([agents.utm[:, :2], agents.z[:, None]], axis=1)
            camera = transform(shot.place, shot.rotation) @ transform(lens.mount.translation, lens.mount.rotation)
            inside = moved(places, inverse(camera))
            file = tree.blob(shots.files[number]) or ""
            picture = cv2.cvtColor(cv2.imdecode(np.frombuffer(tree.read(file), np.uint8), 1), cv2.COLOR_BGR2RGB)
            for kind, place in zip(agents.categories, inside, strict=True):
                if 4 < place[2] < 30 and abs(place[0]) < 0.5 * place[2] and kind == "vehicle":
                    u, v = projected(place[None], lens.intrinsic, lens.distortion)[0]
                    seen.append(np.abs(picture[round(v), round(u)].astype(int) - COLOURS[kind]).max() < 90)
    assert hits > 10 and len(seen) > 5 and np.mean(seen) > 0.5  # another box may lie before it
    assert kinds <= set(CATEGORIES) and {"vehicle", "pedestrian"} <= kinds
