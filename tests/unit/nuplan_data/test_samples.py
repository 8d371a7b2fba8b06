"""From a raw tree to samples: bundles, records, windows, splits, augmentation, batches."""

import io
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lead_protocol.store.folder import FolderStore
from lead_testing.bytes_recipe import FailingStore
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.frame_memory import FrameMemory
from lead_trainer.data.source_tree import FolderTree, StoreTree
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.recipes.nuplan.augment import Draw, draw, mirrored, random_of, thinned, write_coloured
from lead_trainer.recipes.nuplan.bundle_record import from_record, rig_arrays, rig_text, to_record
from lead_trainer.recipes.nuplan.data_keys import AugmentationKeys, DataKeys, ReadsSamples
from lead_trainer.recipes.nuplan.dataset import SAMPLE, training_samples, validation_samples, whole_sample
from lead_trainer.recipes.nuplan.dataset_collate import collate
from lead_trainer.recipes.nuplan.geometry import moved, transform
from lead_trainer.recipes.nuplan.ingest.log_split import split_of_logs
from lead_trainer.recipes.nuplan.ingest.log_tables import Log, Mount
from lead_trainer.recipes.nuplan.ingest.nuplan_tree import NuplanTree
from lead_trainer.recipes.nuplan.preparation import NuplanPreparation
from lead_trainer.recipes.nuplan.prepare_keys import NuplanKeys, data_keys_of
from lead_trainer.recipes.nuplan.sensor_bundle import SensorBundle, read_npz, write_npz
from lead_trainer.recipes.nuplan.targets.bundles import bundle_of_sweep, rig_of
from lead_trainer.recipes.nuplan.targets.clouds import pillars_of, points_of
from lead_trainer.recipes.nuplan.targets.grids import cells_of, covered, middles, seen_by_lidar
from lead_trainer.recipes.nuplan.windows import window_starts
from unit.nuplan_data.conftest import CACHED, build

Config = Callable[..., ReadsSamples]


@pytest.fixture(scope="module")
def keys() -> NuplanKeys:
    return NuplanKeys.of(data_keys_of({"data": CACHED}))


@pytest.fixture(scope="module")
def a_log(example: Path) -> tuple[NuplanTree, Log, int]:
    """A log of the example, and its first sweep with blobs."""
    tree = NuplanTree(FolderTree(example))
    log = tree.log("mini", tree.logs_of("mini")[0])
    return tree, log, next(number for number, cloud in enumerate(log.clouds) if tree.blob(cloud))


@pytest.fixture(scope="module")
def bundle(a_log: tuple[NuplanTree, Log, int], keys: NuplanKeys) -> SensorBundle:
    return bundle_of_sweep(*a_log, keys)


def same(one: SensorBundle, other: SensorBundle) -> None:
    assert one.meta() == other.meta() and one.images == other.images
    for name, array in one.arrays().items():
        assert array.dtype == other.arrays()[name].dtype
        np.testing.assert_array_equal(array, other.arrays()[name], err_msg=name)


def test_n_02_and_n_03_a_bundle_has_every_field_of_its_form(bundle: SensorBundle) -> None:
    same(read_npz(write_npz(bundle), "a.npz"), bundle)
    assert len(bundle.images) == 3 and bundle.points.shape[0] > 1000 and len(bundle.boxes) > 2
    assert bundle.labelled.all() and bundle.layers[0].any() and bundle.occupied.any() and bundle.future_valid.any()
    assert bundle.ego_future_valid.any() and bundle.city.startswith("us-nv") and len(bundle.token) == 16


def test_n_05_and_n_06_a_bundle_survives_a_file_and_a_record_bit_for_bit(
    bundle: SensorBundle, a_log: tuple[NuplanTree, Log, int], keys: NuplanKeys
) -> None:
    meta = {
        **{name: getattr(bundle, name) for name in ("timestamp", "log", "token", "city", "calibration")},
        "drop_flags": "", "channels": " ".join(bundle.channels), "image_size": "24 40",
    }  # fmt: skip
    record = {name: memoryview(data) for name, data in to_record(bundle).items()}
    same(from_record(record, meta, rig_arrays(rig_text(rig_of(a_log[1], keys)))), bundle)
    same(read_npz(write_npz(bundle), "a.npz"), bundle)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("points", np.zeros((4, 4), np.float32), r"field points: found float32 \[4, 4\], expected float32 \[P, 5\]"),
        ("points", np.zeros((4, 5)), r"field points: found float64 \[4, 5\], expected float32"),
        ("points", np.full((4, 5), np.nan, np.float32), "field points: found a number that is not finite"),
        ("intrinsics", np.zeros((6, 3, 3), np.float32), r"field intrinsics: .* expected float32 \[3, 3, 3\]"),
        ("future_valid", np.zeros((99, 8), np.bool_), r"field future_valid: found bool \[99, 8\], expected bool"),
        ("layers", np.zeros((5, 40, 39), np.uint8), r"field layers: found uint8 \[5, 40, 39\]"),
        ("image_CAM_F0", np.zeros(4), "field image_CAM_F0: expected the bytes of a JPEG"),
        ("extra", np.zeros(4), "field extra is none of SensorBundle 1"),
        ("known", None, "field known is missing"),
        ("meta", np.frombuffer(b'{"version": 2}', np.uint8), "version: found 2, expected 1"),
        ("meta", np.frombuffer(b"[", np.uint8), "is no NPZ file of a SensorBundle"),
    ],
)
def test_n_05_a_bundle_of_another_form_is_refused_by_the_fields_name(
    bundle: SensorBundle, field: str, value: Any, sentence: str
) -> None:
    with np.load(io.BytesIO(write_npz(bundle))) as stored:
        arrays = {**stored, field: value}
    if value is None:
        del arrays[field]
    changed = io.BytesIO()
    np.savez(changed, **arrays)
    with pytest.raises(BadData, match=rf"^file a\.npz: .*{sentence}"):
        read_npz(changed.getvalue(), "a.npz")


def test_n_05_a_bundle_whose_calibration_was_changed_is_refused(bundle: SensorBundle) -> None:
    with np.load(io.BytesIO(write_npz(bundle))) as stored:
        arrays = {**stored, "intrinsics": stored["intrinsics"] + 1}
    changed = io.BytesIO()
    np.savez(changed, **arrays)
    whole = changed.getvalue()
    with pytest.raises(BadData, match="calibration: found"):
        read_npz(whole, "a.npz")


def test_n_04_the_rig_picks_channels_in_its_order_and_rings_below_its_number(
    a_log: tuple[NuplanTree, Log, int], keys: NuplanKeys
) -> None:
    tree, log, sweep = a_log
    six = ("CAM_F0", "CAM_L0", "CAM_R0", "CAM_L1", "CAM_R1", "CAM_B0")
    found = bundle_of_sweep(tree, log, sweep, replace(keys, cameras=six, lidar_rings=12))
    assert found.channels == six == DataKeys().cameras and found.intrinsics.shape == (6, 3, 3)
    for number, channel in enumerate(six):
        mount = log.lenses[channel].mount
        assert found.camera_to_vehicle[number] == pytest.approx(transform(mount.translation, mount.rotation), abs=1e-6)
    every = bundle_of_sweep(tree, log, sweep, replace(keys, lidar_rings=0))
    assert found.points[:, 4].max() == 11 and every.points[:, 4].max() > 11
    with pytest.raises(BadData, match="the log has no camera CAM_X9"):
        bundle_of_sweep(tree, log, sweep, replace(keys, cameras=("CAM_X9",)))


def test_n_08_windows_of_twenty_seconds_overlap_and_end_in_their_scene() -> None:
    ten_hz = 1_000_000_000 + 100_000 * np.arange(200)
    starts = window_starts(ten_hz, 4.0, 2.0)
    assert starts.tolist() == [0, 20, 40, 60, 80, 100, 120, 140, 160]
    assert ten_hz[starts[-1]] + 4_000_000 <= ten_hz[-1] + 100_000
    jitter = np.random.default_rng(0).integers(-900, 900, 200)
    assert window_starts(ten_hz + jitter, 4.0, 2.0).tolist() == starts.tolist()
    assert window_starts(ten_hz[:39], 4.0, 2.0).tolist() == [] and window_starts(ten_hz[:1], 4.0, 2.0).tolist() == []
    assert window_starts(ten_hz[:40], 4.0, 2.0).tolist() == [0]
    assert window_starts(ten_hz[::10], 4.0, 0.5).tolist() == list(range(17))


def test_n_09_logs_are_split_whole_and_each_city_lies_on_both_sides() -> None:
    cities = {f"log{number:02d}": "abc"[number % 3] for number in range(30)} | {"alone": "d"}
    found = split_of_logs(cities, 0.2, 0)
    assert found == split_of_logs(dict(reversed(cities.items())), 0.2, 0) != split_of_logs(cities, 0.2, 1)
    assert {city: sum(found[log] == "val" for log in cities if cities[log] == city) for city in "abcd"} == {
        "a": 2, "b": 2, "c": 2, "d": 0,
    }  # fmt: skip
    assert set(split_of_logs({"x": "a", "y": "a"}, 0.01, 0).values()) == {"train", "val"}
    assert set(split_of_logs({"x": "a", "y": "a"}, 0.0, 0).values()) == {"train"}


def test_n_09_no_log_is_in_both_splits_and_each_city_is_in_both(cache: CacheReader, a_config: Config) -> None:
    sides = training_samples(a_config(), {"local": cache}), validation_samples(a_config(), {"local": cache})
    logs = [{split.load(index, 0)["log"] for index in range(len(split))} for split in sides]
    assert [len(side) for side in logs] == [2, 2] and logs[0].isdisjoint(logs[1])
    assert [len(split) for split in sides] == [6, 6]
    reasons = {verdict["reason"] for verdict in cache.verdicts().to_pylist()}
    assert reasons == {"kept", "cloud_missing", "scene_at_the_end_of_its_log"}


def test_a_sample_is_what_its_page_lists_and_that_of_a_bundle_made_on_the_fly(
    cache: CacheReader, a_config: Config, example: Path, keys: NuplanKeys
) -> None:
    sample = validation_samples(a_config(), {"local": cache}).load(1, 0)
    tree = NuplanTree(FolderTree(example))
    log = tree.log("mini", sample["log"])
    anew = whole_sample(bundle_of_sweep(tree, log, log.tokens.index(sample["token"]), keys))
    assert sample.keys() == anew.keys() == SAMPLE.keys()
    for name, value in anew.items():
        np.testing.assert_array_equal(sample[name], value, err_msg=name)
        array = np.asarray(value)
        if array.dtype.kind != "U":
            kind = SAMPLE[name].partition(")")[2].split(",")[0].split(":")[0].split() or SAMPLE[name].split(",")[:1]
            assert kind[0] == str(array.dtype), name


def test_n_61_calibrations_are_stored_once_a_log(built: tuple[FailingStore, CacheReader]) -> None:
    _, cache = built
    rows = cache.rows("train")
    fields = cache.fields(int(rows.sample[0]))
    assert set(fields) == {"image_CAM_F0", "image_CAM_L0", "image_CAM_R0", "points", "labels"}
    texts = {cache.metas().row(rows.route[n], int(rows.frame[n]))["rig"] for n in range(len(rows.sample))}
    assert len(texts) == 1  # both logs of training have the same car
    rig = rig_arrays(texts.pop())
    assert rig["intrinsics"].shape == (3, 3, 3) and rig["intrinsics"].dtype == np.float32


def test_n_07_a_second_epoch_reads_no_raw_file(
    example: Path, tmp_path: Path, a_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(shutil.copytree(example, tmp_path / "tree"))
    cache = build(root, FolderStore(tmp_path / "store"))
    shutil.rmtree(root)
    samples = training_samples(a_config(), {"local": cache})
    for epoch in range(2):
        assert all(samples.load(index, epoch)["point_count"] > 0 for index in range(len(samples)))


def test_n_55_shards_hold_each_frame_once_and_a_scene_lies_in_one(cache: CacheReader) -> None:
    rows = [cache.rows(name) for name in ("train", "val")]
    numbers = np.concatenate([np.asarray(side.sample) for side in rows])
    assert sorted(numbers.tolist()) == list(range(16))
    shards = cache.sample_shards(numbers)
    routes = [side.route[n] for side in rows for n in range(len(side.sample))]
    assert len(set(shards.tolist())) > 1
    assert all(
        len({shard for shard, other in zip(shards, routes, strict=True) if other == route}) == 1 for route in routes
    )


def test_a_logs_database_is_fetched_once_and_no_file_twice(example: Path, tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "raw")
    for file in sorted(example.rglob("*")):
        if file.is_file():
            store.put(f"tree/{file.relative_to(example)}", file.read_bytes())
    read: list[str] = []

    class Counting(StoreTree):
        def read(self, path: str) -> bytes:
            read.append(path)
            return super().read(path)

    preparation, tree = NuplanPreparation(), Counting(store, "tree")
    keys = preparation.config_keys({"data": CACHED})
    found = preparation.scan(tree, keys, ["train", "val"])
    for key in found.samples:
        preparation.record(tree, keys, key)
    for route in {key.route for key in found.samples}:
        preparation.route_metas(tree, keys, route, [key.frame for key in found.samples if key.route == route])
    assert len(read) == len(set(read)) and sum(path.endswith(".db") for path in read) == 4


def test_n_17_validation_has_no_chance_and_training_draws_by_seed_and_epoch(
    cache: CacheReader, a_config: Config
) -> None:
    config = a_config(augmentation={"flip": 0.5, "point_dropout": 0.3, "point_noise_m": 0.1})
    training, validation = (load(config, {"local": cache}) for load in (training_samples, validation_samples))
    for name, value in validation.load(0, 0).items():
        np.testing.assert_array_equal(value, validation.load(0, 5)[name], err_msg=name)
    for name, value in training.load(1, 3).items():
        np.testing.assert_array_equal(value, training.load(1, 3)[name], err_msg=name)
    assert (np.asarray(training.load(1, 3)["images"]) != np.asarray(training.load(1, 4)["images"])).any()
    still = a_config(augmentation={"brightness": 0.0, "contrast": 0.0, "saturation": 0.0})
    plain = training_samples(still, {"local": cache})
    np.testing.assert_array_equal(plain.load(0, 0)["images"], plain.load(0, 1)["images"])


def test_n_13_a_mirrored_sample_is_seen_by_mirrored_cameras_and_twice_is_itself(
    cache: CacheReader, a_config: Config
) -> None:
    sample = validation_samples(a_config(), {"local": cache}).load(0, 0)
    flipped = mirrored(sample)
    back = mirrored(flipped)
    for name, value in sample.items():
        assert np.asarray(value).tobytes() == np.asarray(back[name]).tobytes(), name
    changed = {
        name for name, value in sample.items() if np.asarray(value).tobytes() != np.asarray(flipped[name]).tobytes()
    }
    assert changed >= {
        "images", "intrinsics", "camera_to_vehicle", "picture_to_sweep", "calibration", "points", "boxes", "futures",
        "ego_future", "layers", "occupied", "known",
    }  # fmt: skip
    # What a camera saw at (u, v) of a point, its mirror image sees at (width - 1 - u, v) of the mirrored point.
    place = np.array([[12.0, 3.0, 0.5]])
    for camera in range(3):
        u, v = pixel(sample, camera, place)
        assert pixel(flipped, camera, place * [1.0, -1.0, 1.0]) == pytest.approx((39 - u, v), abs=1e-3)
    assert (np.asarray(sample["images"]) == np.asarray(flipped["images"])[:, :, ::-1]).all()
    assert (sample["layers"] == flipped["layers"][..., ::-1]).all()


def pixel(sample: dict[str, Any], camera: int, place: Any) -> tuple[float, float]:
    """Returns where a camera of a sample sees a place of the vehicle's frame at the picture's time."""
    mount = np.linalg.inv(sample["camera_to_vehicle"][camera].astype(float))
    x, y, z = moved(place, mount)[0]
    matrix = sample["intrinsics"][camera]
    return float(matrix[0, 0] * x / z + matrix[0, 2]), float(matrix[1, 1] * y / z + matrix[1, 2])


def test_n_13_colours_change_by_the_keys_and_not_at_all_by_one() -> None:
    pictures = list(np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3)).astype(np.uint8))
    mean = np.mean(pictures)

    def changed(chosen: Draw) -> Any:
        memory = FrameMemory((2, 8, 8, 3))
        found = np.empty_like(np.stack(pictures))
        write_coloured(pictures, chosen, memory, found)
        return found

    assert (changed(Draw()) == np.stack(pictures)).all()
    assert changed(Draw(brightness=0.5)).mean() == pytest.approx(0.5 * mean, abs=0.5)
    flat = changed(Draw(contrast=0.0)).astype(int)
    assert np.abs(flat - mean).max() <= 1
    grey = changed(Draw(saturation=0.0))
    assert (grey.max(axis=-1) == grey.min(axis=-1)).all()
    keys = AugmentationKeys(brightness=0.2, contrast=0.1, saturation=0.0, flip=0.25)
    drawn = [draw(keys, random_of(1, 2, index)) for index in range(400)]
    assert {one.saturation for one in drawn} == {1.0} and 60 < sum(one.flip for one in drawn) < 140
    assert all(0.8 <= one.brightness <= 1.2 and 0.9 <= one.contrast <= 1.1 for one in drawn)


def test_n_14_pillars_dropout_and_the_range_of_intensity() -> None:
    points = np.random.default_rng(0).uniform(-50, 50, (4000, 5)).astype(np.float32)
    random = np.random.default_rng(1)
    assert thinned(points, AugmentationKeys(), random) is points
    assert len(thinned(points, AugmentationKeys(point_dropout=0.5), random)) == pytest.approx(2000, abs=150)
    noisy = thinned(points, AugmentationKeys(point_noise_m=0.1), random)
    assert (noisy - points)[:, :3].std() == pytest.approx(0.1, abs=0.01) and (noisy[:, 3:] == points[:, 3:]).all()
    corners = np.array([[-49.99, -49.99], [49.99, 49.99], [49.98, 49.98], [50.0, 0.0]])
    assert pillars_of(corners, 50.0, 0.2).tolist() == [1, 2]
    assert DataKeys().pillar_cells == 500
    cloud = np.array([[1, 2, 60], [0, 0, 0], [0, 0, 0], [0, 255, 9], [0, 40, 1], [0, 0, 0]], np.float32)
    still = Mount(np.zeros(3), np.array([1.0, 0, 0, 0]))
    assert points_of(cloud, still, 50.0, 32).tolist() == [[1, 0, 0, 0, 0]]
    assert points_of(cloud, still, 50.0, 0).tolist() == [[1, 0, 0, 0, 0], [2, 0, 0, 1, 40]]


def test_n_15_a_point_and_a_cells_middle_lie_in_the_same_cell() -> None:
    cells = middles(50.0, 0.5)
    assert cells.shape == (200, 200, 2) and cells_of(np.array([[10.0, -5.0]]), 50.0, 0.5).tolist() == [[120, 90]]
    assert cells[120, 90].tolist() == [10.25, -4.75]
    assert (
        cells_of(cells.reshape(-1, 2), 50.0, 0.5).reshape(200, 200, 2) == np.indices((200, 200)).transpose(1, 2, 0)
    ).all()


def test_what_the_lidar_has_seen_ends_at_the_farthest_return_of_a_direction() -> None:
    cells, none = middles(10.0, 1.0), np.zeros((20, 20), np.bool_)
    known = seen_by_lidar(np.array([[5.4, 0.4, 0.0]]), none, cells, 10.0, 1.0)
    assert known[15, 10] and not known[17, 10] and not known[5, 10]
    assert not seen_by_lidar(np.empty((0, 3)), none, cells, 10.0, 1.0).any()
    assert not covered([], cells).any()


def test_a_tree_without_maps_gives_samples_without_labels_of_segmentation(
    copy: Path, tmp_path: Path, a_config: Config
) -> None:
    shutil.rmtree(copy / "maps")
    cache = build(copy, FolderStore(tmp_path / "store"))
    sample = training_samples(a_config(), {"local": cache}).load(0, 0)
    assert sample["labelled"].tolist() == [True, False, True, True] and not sample["layers"].any()


def test_n_29_batches_are_padded_to_their_longest_and_made_of_like_lengths(
    cache: CacheReader, a_config: Config
) -> None:
    samples = training_samples(a_config(), {"local": cache})
    loaded = [samples.load(index, 0) for index in range(len(samples))]
    assert samples.group_lengths().tolist() == [int(one["agent_valid"].sum()) for one in loaded]
    batch = collate(loaded)
    most = max(len(one["boxes"]) for one in loaded)
    assert batch["boxes"].shape == (6, most, 7) and batch["future_valid"].shape == (6, most, 8)
    assert batch["points"].shape == (6, max(len(one["points"]) for one in loaded), 5)
    assert batch["point_count"].tolist() == [len(one["points"]) for one in loaded]
    assert not batch["agent_valid"][:, -1].all() or len(set(samples.group_lengths().tolist())) == 1
    nobody = {**loaded[0], "agent_valid": np.zeros(1, np.bool_)}
    nobody |= {name: nobody[name][:1] * 0 for name in ("boxes", "box_class", "futures", "future_valid")}
    assert collate([nobody, loaded[1]])["agent_valid"][0].any().item() is False


def test_a_sample_knows_its_shard_and_is_named_by_scene_and_sweep(cache: CacheReader, a_config: Config) -> None:
    samples = training_samples(a_config(), {"local": cache})
    assert samples.shards_of(np.arange(len(samples))).shape == (6,)
    assert samples.name(0).startswith("2021.05.") and " sweep " in samples.name(0)


def test_a_cache_of_other_keys_and_a_window_longer_than_any_scene_are_refused(
    cache: CacheReader, a_config: Config
) -> None:
    with pytest.raises(BadConfig, match=r"data\.cell_m: found 0\.8, the cache has 1\.6"):
        training_samples(a_config(cell_m=0.8), {"local": cache})
    with pytest.raises(BadConfig, match=r"data\.window_s: found 4\.0, but none of the 2 scenes of train is so long"):
        training_samples(a_config(window_s=4.0), {"local": cache})
    with pytest.raises(BadConfig, match="datasets: found none, but recipe nuplan trains on one"):
        training_samples(a_config(), {})
