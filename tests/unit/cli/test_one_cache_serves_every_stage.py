"""Stages of recipe `lead` over one tree share a cache on a laptop too; only what differs is built again."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml

from lead_protocol.exit_codes import ExitCode
from lead_protocol.store.folder import FolderStore
from lead_trainer.cli import main
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.example_worlds.lead.tree import write_example_tree
from lead_trainer.recipes.lead.config_values import load_config
from lead_trainer.recipes.lead.dataset import LeadSamples


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    write_example_tree(folder, routes=1, frames=20, seed=0)
    return folder


def caches(tree: Path) -> list[str]:
    return sorted(path.parent.name for path in (tree / "cache/caches").glob("*/*/MANIFEST.json"))


@pytest.fixture
def built_by(tree: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Builds a cache by `lead cache` with these words, and returns the digest it prints."""

    def run(*words: str) -> str:
        capsys.readouterr()
        assert main(["cache", "preset=demo", f"carla_root={tree}", *words]) == ExitCode.DONE
        return capsys.readouterr().out.split()[-1]

    return run


def test_pretrain_and_posttrain_build_one_cache(tree: Path, tmp_path: Path) -> None:
    words = ["train", "preset=demo", f"carla_root={tree}", "epochs=1", "num_threads=1", "batch_size=4"]
    assert main([*words, f"logdir={tmp_path / 'pre'}"]) == ExitCode.DONE
    (built,) = caches(tree)
    made = (tree / "cache/caches/local" / built / "MANIFEST.json").stat().st_mtime_ns

    load_file = f"load_file={tmp_path / 'pre/model_0000.pth'}"
    assert main([*words, f"logdir={tmp_path / 'post'}", load_file, "use_planning_decoder=true"]) == ExitCode.DONE
    assert caches(tree) == [built]
    assert (tree / "cache/caches/local" / built / "MANIFEST.json").stat().st_mtime_ns == made


def test_another_stage_or_held_out_towns_are_in_the_cache_and_other_labels_are_not(
    built_by: Callable[..., str],
) -> None:
    first = built_by()
    assert built_by("use_planning_decoder=true") == first
    assert built_by("hold_out_town13_routes=true") == first
    assert built_by("use_planning_decoder=true", "hold_out_town13_routes=true") == first
    assert built_by("--collection", "full_posttrain") == first  # what is asked for is in it
    assert built_by("max_num_bbs=30") != first


def test_a_cache_that_lacks_a_collection_is_not_taken(tree: Path, built_by: Callable[..., str]) -> None:
    small = built_by("--collection", "full_posttrain")
    whole = built_by()
    assert whole != small
    assert built_by("--collection", "full_posttrain") == small
    (tree / "cache/caches/local" / small / "MANIFEST.json").write_text("damaged")  # and so in nobody's place
    assert built_by("--collection", "full_pretrain") == whole


HORIZON = ["use_planning_decoder=true", "num_way_points_prediction=4", "waypoints_spacing=5"]


def test_a_posttrain_of_another_horizon_takes_the_cache_of_its_pretrain(
    tree: Path, tmp_path: Path, built_by: Callable[..., str]
) -> None:
    """A cache of its own would be 200 GB more of LEAD's data."""
    words = ["train", "preset=demo", f"carla_root={tree}", "epochs=1", "num_threads=1", "batch_size=4"]
    assert main([*words, f"logdir={tmp_path / 'pre'}"]) == ExitCode.DONE
    (built,) = caches(tree)
    load_file = f"load_file={tmp_path / 'pre/model_0000.pth'}"
    assert main([*words, f"logdir={tmp_path / 'post'}", load_file, *HORIZON]) == ExitCode.DONE
    assert built_by(*HORIZON) == built and caches(tree) == [built]


@pytest.mark.parametrize("held_out", [[], ["hold_out_town13_routes=true"]])
def test_the_rows_of_another_horizon_are_those_of_a_cache_of_its_own(
    tmp_path: Path, built_by: Callable[..., str], tree: Path, held_out: list[str]
) -> None:
    kind = "town13_heldout_posttrain" if held_out else "full_posttrain"
    shared, own = built_by(*HORIZON, *held_out), built_by(*HORIZON, *held_out, "--collection", kind)
    assert shared != own
    keys = yaml.safe_load("{" + ", ".join(word.replace("=", ": ") for word in [*HORIZON, *held_out]) + "}")
    config = load_config(keys, "demo")
    both = [LeadSamples(config, CacheReader(FolderStore(tree / "cache"), digest)) for digest in (shared, own)]
    one, other = (samples._rows for samples in both)
    assert list(one.route) == list(other.route) and one.mixture == other.mixture and len(one.frame) == 20 - 8
    for name in ("frame", "bucket"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for key, value in both[1].sample(3, perturbed=False).items():
        np.testing.assert_array_equal(both[0].sample(3, perturbed=False)[key], value, err_msg=key)


def test_a_horizon_that_draws_frames_which_pretraining_leaves_out_has_a_cache_of_its_own(
    built_by: Callable[..., str],
) -> None:
    assert built_by(*HORIZON, "skip_first_posttrain=0") != built_by()


def test_a_second_cache_of_the_same_files_is_warned_of_with_the_key_that_differs(
    tree: Path, built_by: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    first = built_by()
    words = ["cache", "preset=demo", f"carla_root={tree}", *HORIZON, "skip_first_posttrain=0"]
    assert main(words) == ExitCode.DONE
    said = capsys.readouterr()
    (line,) = [each for each in (said.out + said.err).splitlines() if "does not fit" in each]
    assert (
        f"cache {first[:12]} of the same files does not fit" in line and "skip_first_posttrain: found 0, it has" in line
    )
    assert "Another whole cache is built" in line
    assert main(words) == ExitCode.DONE  # it is there now
    assert "does not fit" not in capsys.readouterr().err


def test_the_first_cache_of_files_is_no_second_one(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "preset=demo", f"carla_root={tree}"]) == ExitCode.DONE
    said = capsys.readouterr()
    assert "does not fit" not in said.out + said.err
