"""Which windows there are, what one holds, which of them an epoch draws, and what is done to one at random."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lead_testing.bytes_recipe import FailingStore
from lead_trainer.contract.samples import stacked
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.frame_memory import FrameMemory
from lead_trainer.data.loader import Loader
from lead_trainer.data.packed_backend import PackedBackend
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.world.augment import Draw, Frame, draw, steered, write_changed
from lead_trainer.recipes.world.curriculum import by_difficulty, drawn, phase_of
from lead_trainer.recipes.world.data_keys import AugmentationKeys, CurriculumKeys, ReadsWindows
from lead_trainer.recipes.world.dataset import WindowSamples, training_samples, validation_samples
from lead_trainer.recipes.world.windows import count_windows, skipped_actions

Config = Callable[..., ReadsWindows]
STILL = {"augmentation": {"brightness": 0.0, "contrast": 0.0, "crop_scale": [1.0, 1.0], "flip": 0.0}}
T, HEIGHT, WIDTH, KEYFRAMES = 4, 32, 48, 8


def pictures(samples: WindowSamples, index: int, epoch: int = 0) -> npt.NDArray[np.uint8]:
    """The window's frames (T, H, W, 3)."""
    return np.asarray(samples.load(index, epoch)["images"])


def all_changed(frames: Sequence[Frame] | npt.NDArray[np.uint8], chosen: Draw) -> npt.NDArray[np.uint8]:
    """Frames (T, H, W, 3) as `write_changed` writes them."""
    memory = FrameMemory((len(frames), *frames[0].shape))
    found = np.empty((len(frames), *frames[0].shape), np.uint8)
    write_changed(frames, chosen, memory, found)
    return found


def both(cache: CacheReader, config: ReadsWindows) -> tuple[WindowSamples, WindowSamples]:
    return training_samples(config, {"local": cache}), validation_samples(config, {"local": cache})


def test_w_02_a_scene_has_every_window_and_lies_in_one_split(cache: CacheReader, a_config: Config) -> None:
    training, validation = both(cache, a_config())
    assert (len(training), len(validation)) == (6 * (KEYFRAMES - T + 1), 2 * (KEYFRAMES - T + 1))
    scenes = [{str(split.load(n, 0)["scene"]) for n in range(len(split))} for split in (training, validation)]
    assert [len(names) for names in scenes] == [6, 2] and scenes[0].isdisjoint(scenes[1])
    sample = validation.load(KEYFRAMES - T + 3, 0)
    assert sample["images"].shape == (T, HEIGHT, WIDTH, 3) and sample["images"].dtype == np.uint8
    assert sample["actions"].shape == (T - 1, 4) and sample["actions"].dtype == np.float32
    assert (sample["scene"], sample["first_frame"]) == ("scene-0012", 2)
    assert validation.name(KEYFRAMES - T + 3) == "val/scene-0012 frame 2"


def test_neighbouring_windows_hold_the_same_frames_and_actions(cache: CacheReader, a_config: Config) -> None:
    _, samples = both(cache, a_config())
    first, second = samples.load(0, 0), samples.load(1, 0)
    assert (pictures(samples, 0)[1:] == pictures(samples, 1)[:-1]).all()
    assert (first["actions"][1:] == second["actions"][:-1]).all()


def test_w_11_a_skip_of_two_takes_every_second_frame_and_averages(cache: CacheReader, a_config: Config) -> None:
    _, plain = both(cache, a_config(sequence_length=5))
    _, skipping = both(cache, a_config(sequence_length=3, frame_skip=2))
    whole, halved = plain.load(0, 0), skipping.load(0, 0)
    assert len(skipping) == 2 * count_windows(KEYFRAMES, 3, 2) == 4
    assert (pictures(skipping, 0) == pictures(plain, 0)[::2]).all()
    assert halved["actions"][0, :3] == pytest.approx(whole["actions"][:2, :3].mean(axis=0), abs=1e-6)
    assert [int(skipping.load(n, 0)["first_frame"]) for n in range(2)] == [0, 2]


def test_the_gear_of_a_skipped_step_is_that_of_its_last_part() -> None:
    actions = np.array([[0.2, 0.0, 1.0, 1.0], [0.4, 1.0, 0.0, 0.0]], np.float32)
    assert skipped_actions(actions, 2)[0] == pytest.approx([0.3, 0.5, 0.5, 0.0])


def test_a_length_that_no_scene_has_is_named_with_the_longest(cache: CacheReader, a_config: Config) -> None:
    with pytest.raises(BadConfig, match=r"data\.sequence_length: found 9 .* has 8 such frames"):
        training_samples(a_config(sequence_length=9), {"local": cache})
    with pytest.raises(BadConfig, match=r"data\.sequence_length: found 5 with data.frame_skip 2.* has 4"):
        training_samples(a_config(sequence_length=5, frame_skip=2), {"local": cache})


def test_a_run_of_other_pictures_than_the_caches_is_refused_by_key(cache: CacheReader, a_config: Config) -> None:
    with pytest.raises(BadConfig, match=r"data\.image_size: found \[64, 64\], the cache has \[32, 48\]"):
        training_samples(a_config(image_size=[64, 64]), {"local": cache})


@pytest.mark.parametrize("values", [{"sequence_length": 1}, {"frame_skip": 0}, {"image_size": [4, 4]},
                                    {"augmentation": {"crop_scale": [0.9, 0.8]}}, {"val_share": 1.0}])  # fmt: skip
def test_keys_without_a_meaning_are_refused(values: dict[str, Any], a_config: Config) -> None:
    with pytest.raises(ValueError, match=next(iter(values))):
        a_config(**values)


def test_w_37_one_draw_changes_all_frames_of_a_window_alike(cache: CacheReader, a_config: Config) -> None:
    training, _ = both(cache, a_config())
    plain, _ = both(cache, a_config(**STILL))
    frames = list(pictures(plain, 3))
    chosen = draw(AugmentationKeys(), 7, 0, 3)
    alike = all_changed([frames[0]] * T, chosen)
    assert (alike == alike[0]).all() and (alike[0] != frames[0]).any()
    assert (pictures(training, 3) == all_changed(frames, chosen)).all()
    assert (pictures(training, 3, 0) == pictures(training, 3, 0)).all()
    assert (pictures(training, 3, 0) != pictures(training, 3, 1)).any()


def test_brightness_and_contrast_are_those_of_the_whole_windows_mean() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (T, HEIGHT, WIDTH, 3), np.uint8)
    chosen = Draw(scale=1.0, down=0.0, right=0.0, flip=False, brightness=1.1, contrast=0.8)
    wanted = ((frames - frames.mean()) * 0.8 + frames.mean()) * 1.1
    found = all_changed(frames, chosen)
    assert np.abs(found - np.clip(wanted, 0, 255)).max() <= 0.5 + 1e-9


def test_w_37_a_mirror_negates_the_steering_and_nothing_else() -> None:
    keys = AugmentationKeys(brightness=0.0, contrast=0.0, crop_scale=(1.0, 1.0), flip=1.0)
    frames = np.random.default_rng(0).integers(0, 256, (T, HEIGHT, WIDTH, 3), np.uint8)
    actions = np.random.default_rng(1).random((T - 1, 4), np.float32)
    chosen = draw(keys, 1)
    mirrored, turned = all_changed(frames, chosen), steered(actions, chosen)
    assert (mirrored == frames[:, :, ::-1]).all()
    assert (turned[:, 0] == -actions[:, 0]).all() and (turned[:, 1:] == actions[:, 1:]).all()
    assert (all_changed(mirrored, chosen) == frames).all() and (steered(turned, chosen) == actions).all()


def test_validation_is_without_chance(cache: CacheReader, a_config: Config) -> None:
    _, one = both(cache, a_config(seed=1))
    _, other = both(cache, a_config(seed=2, **STILL))
    for epoch in (0, 5):
        assert (pictures(one, 2, epoch) == pictures(other, 2)).all()


def test_w_44_nine_sequences_are_drawn_in_thirds_from_the_easiest_on() -> None:
    keys = CurriculumKeys(enabled=True)
    order = by_difficulty(np.array([0.5, 0.1, 0.9, 0.2, 0.8, 0.3, 0.7, 0.4, 0.6]))
    thirds = [drawn(order, phase_of(keys, epoch)).tolist() for epoch in (0, 19, 20, 39, 40, 59)]
    assert thirds == [[1, 3, 5], [1, 3, 5], [0, 7, 8], [0, 7, 8], [2, 4, 6], [2, 4, 6]]
    assert drawn(order, phase_of(keys, 60)).tolist() == list(range(9))
    assert drawn(order, phase_of(CurriculumKeys(), 0)).tolist() == list(range(9))


def test_w_44_and_w_56_a_phase_draws_the_scenes_of_its_difficulty(cache: CacheReader, a_config: Config) -> None:
    config = a_config(curriculum=CurriculumKeys(enabled=True, epochs_per_phase=2))
    training, validation = both(cache, config)
    metas = cache.metas()

    def hardness(epoch: int) -> list[float]:
        windows = [training.load(int(n), epoch) for n in training.epoch_draw(epoch)]
        return [metas.row(f"train/{window['scene']}", 0)["difficulty"] for window in windows]

    first, second, third = (hardness(epoch) for epoch in (1, 2, 4))
    assert len(first) == len(second) == len(third) == len(training) // 3
    assert max(first) <= min(second) and max(second) <= min(third) and first[0] < third[0]
    assert len(training.epoch_draw(6)) == len(training) and len(validation.epoch_draw(1)) == len(validation)


def test_every_window_lies_in_one_shard_and_a_cold_epoch_reads_the_cache_once(
    built: tuple[FailingStore, CacheReader], a_config: Config, tmp_path: Path
) -> None:
    store, whole = built
    sizes = {shard.object.key: shard.object.size for shard in whole.manifest.shards}
    assert len(sizes) >= 3
    cold = CacheReader(store, whole.digest, PackedBackend(store, tmp_path / "one"))
    store.reads.clear()
    np.asarray(both(cold, a_config())[0].load(3, 0)["images"])
    assert len({key for key in store.reads if key in sizes}) == 1
    cold = CacheReader(store, whole.digest, PackedBackend(store, tmp_path / "other"))
    loaders = [Loader(split, stacked, batch_size=2, seed=1, threads=2) for split in both(cold, a_config())]
    store.reads.clear()
    seen = [(str(scene), int(frame)) for loader in loaders for epoch in (0, 1) for batch in loader.batches(epoch)
            for scene, frame in zip(batch["scene"], batch["first_frame"], strict=True)]  # fmt: skip
    cold.close()
    fetched = sum(sizes[key] for key in store.reads if key in sizes)
    assert fetched <= 1.01 * sum(sizes.values())
    assert len(seen) == 2 * len(set(seen)) == 2 * 8 * (KEYFRAMES - T + 1)
