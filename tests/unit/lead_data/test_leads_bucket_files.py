"""`lead buckets --write` leaves LEAD's bucket files beside the tree, as LEAD's own code wrote and loads them."""

import json
import lzma
import pickle
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lead_protocol.exit_codes import ExitCode
from lead_testing import shared_dir
from lead_testing.leads_cache import modules_of
from lead_trainer.cli import main
from lead_trainer.recipes.lead.ingest.pickle_writer import LeadObject, pickled
from lead_trainer.recipes.lead.ingest.plain_pickle import plain_value

GOLDEN = "golden/lead_data/carla_leaderboard2"
WORDS = {
    "full_pretrain": (),
    "full_posttrain": ("use_planning_decoder=true",),
    "town13_heldout_pretrain": ("hold_out_town13_routes=true",),
    "town13_heldout_posttrain": ("hold_out_town13_routes=true", "use_planning_decoder=true"),
    "failed": ("--collection", "failed"),
}
MIXED = {  # LEAD's file -> words, frames left out of a route, LEAD's numbers of the buckets of two scenarios
    "navsim_8_8_1_10.gz": (("use_navsim_data=true",), (8, 1), {"Accident": 1, "ConstructionObstacle": 4}),
    "navsim_8_8_16_10.gz": (
        ("use_navsim_data=true", "use_planning_decoder=true"), (8, 16), {"Accident": 1, "ConstructionObstacle": 4},
    ),
    "waymo_10_10_1_10.gz": (("use_waymo_e2e_data=true",), (10, 1), {"Accident": 0, "ConstructionObstacle": 3}),
}  # fmt: skip
TREE = "carla_leaderboard2"
CONE = "static.prop.constructioncone"


class Bucket:
    """LEAD's class by name."""

    config: Any
    global_index: int
    metas: Any
    route_dirs: Any
    route_indices: Any
    global_indices: Any
    sample_start: Any


class TrainingConfig:
    """LEAD's class by name."""

    carla_root: str


Bucket.__module__ = "lead.training.data_loader.buckets.bucket"
TrainingConfig.__module__ = "lead.training.config_training"


@cache
def golden(collection: str) -> dict[str, Any]:
    collections = json.loads((shared_dir() / "golden/lead_data/buckets.json").read_text())["collections"]
    found: dict[str, Any] = collections[collection]
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which LEAD was run when the files were measured: the tree lies in it as carla_leaderboard2."""
    root = tmp_path_factory.mktemp("folder")
    shutil.copytree(shared_dir() / GOLDEN, root / "carla_leaderboard2")
    for path in root.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for file in root.glob(f"{TREE}/data/*/*_Town0[56]_*/metas/*.pkl"):  # all of it was measured in bad weather
        meta = plain_value(lzma.decompress(file.read_bytes()))
        file.write_bytes(lzma.compress(pickle.dumps({**meta, "visual_visibility": 0}), preset=0))
    return root


def written(folder: Path, collection: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    assert main(["buckets", "--write", "carla_root=carla_leaderboard2", *WORDS[collection]]) == ExitCode.DONE
    return folder / "carla_leaderboard2" / str(golden(collection)["file"])


def loaded_by_pickle(file: Path) -> dict[str, Any]:
    """Loads a file as LEAD does, with classes of LEAD's names and nothing in them."""
    with modules_of(Bucket, TrainingConfig), lzma.open(file, "rb") as stream:
        found: dict[str, Any] = pickle.load(stream)
    return found


@pytest.mark.parametrize("collection", WORDS)
def test_a_file_holds_what_leads_own_code_wrote(
    folder: Path, collection: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = golden(collection)
    file = written(folder, collection, monkeypatch)
    assert capsys.readouterr().out.splitlines()[-1] == str(file.relative_to(folder))
    found = loaded_by_pickle(file)
    assert sorted(found) == expected["pickle_keys"]
    assert {name: found[name] for name in expected["counters"]} == expected["counters"]
    assert len(found["buckets"]) == len(expected["buckets"])
    for bucket, told in zip(found["buckets"], expected["buckets"], strict=True):
        assert type(bucket) is Bucket and type(bucket.config) is TrainingConfig
        assert bucket.config.carla_root == "carla_leaderboard2"
        assert bucket.global_index == told["n"]
        routes = [bytes(route).decode().split("/")[2:] for route in bucket.route_dirs]
        rows = [[*told["route_table"][route], frame, index] for route, frame, index in told["rows"]]
        numbers = zip(routes, bucket.route_indices.tolist(), bucket.global_indices.tolist(), strict=True)
        assert [[*route, frame, index] for route, frame, index in numbers] == rows
        assert bucket.sample_start.tolist() == bucket.route_indices.tolist()


@pytest.mark.parametrize("collection", ["full_pretrain", "full_posttrain", "failed"])
def test_its_arrays_are_leads_to_the_type_and_the_name(
    folder: Path, collection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = golden(collection)
    (bucket,) = loaded_by_pickle(written(folder, collection, monkeypatch))["buckets"]
    kinds = {
        name: str(value.dtype.str if value.dtype.kind == "S" else value.dtype)
        if isinstance(value, np.ndarray)
        else type(value).__name__
        for name, value in vars(bucket).items()
    }
    assert kinds == expected["bucket_attributes"]
    row = {name: value[0] for name, value in vars(bucket).items() if isinstance(value, np.ndarray)}
    first = {name: bytes(value).decode() if isinstance(value, bytes) else int(value) for name, value in row.items()}
    assert first == expected["first_row"]


@pytest.mark.parametrize("name", MIXED)
def test_beside_real_data_a_file_holds_leads_buckets_by_their_numbers(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Name, numbers and rules are those of LEAD's NavSimBucketCollection and WaymoBucketCollection."""
    words, (first, last), numbers = MIXED[name]
    monkeypatch.chdir(folder)
    assert main(["buckets", "--write", "carla_root=carla_leaderboard2", "LTF=true", *words]) == ExitCode.DONE
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == f"carla_leaderboard2/buckets/{name}"
    assert "LEAD has bucket files of CARLA data alone" in err  # of the mix's other data set, which need not be there
    found = loaded_by_pickle(folder / "carla_leaderboard2/buckets" / name)
    assert len(found["buckets"]) == {"navsim": 60, "waymo": 59}[name.partition("_")[0]]
    rows = [rows_of(bucket) for bucket in found["buckets"]]
    kept = [f"{scenario}/{route}" for scenario, route in golden("full_pretrain")["buckets"][0]["route_table"]]
    drawn = [(route, frame) for route in kept for frame in range(first, frames_of(folder, route) - last)]
    assert sorted(row for of_one in rows for row in of_one) == sorted(drawn)
    assert found["trainable_frames"] == found["all_frames"] == len(drawn)
    assert (found["total_routes"], found["trainable_routes"]) == (17, 9)
    clear = [
        row for row in drawn if name.startswith("waymo") or stored(folder, "metas", *row)["visual_visibility"] == 0
    ]
    assert len(clear) == len(drawn) or rows[0] == [row for row in drawn if row not in clear]  # NavSim's bad weather
    for scenario, number in numbers.items():
        mined = [row for row in clear if is_mined(folder, *row, scenario)]
        assert rows[number] == mined and (mined or not drawn)  # posttraining cuts all of these short routes away
    assert all(bucket.global_index == len(of_one) for bucket, of_one in zip(found["buckets"], rows, strict=True))


def rows_of(bucket: Bucket) -> list[tuple[str, int]]:
    """Returns a bucket's routes and frames, and checks that its paths are those of these frames."""
    found = [(bytes(path).decode(), int(frame)) for path, frame in zip(bucket.metas, bucket.route_indices, strict=True)]
    assert all(path.endswith(f"/metas/{frame:04d}.pkl") for path, frame in found)
    assert bucket.global_indices.tolist() == list(range(len(found)))
    return [("/".join(path.split("/")[2:4]), frame) for path, frame in found]


def frames_of(folder: Path, route: str) -> int:
    return len(list((folder / "carla_leaderboard2/data" / route / "bboxes").iterdir()))


def stored(folder: Path, kind: str, route: str, frame: int) -> Any:
    """Returns what a frame's file holds."""
    return plain_value(lzma.decompress((folder / TREE / "data" / route / kind / f"{frame:04d}.pkl").read_bytes()))


def is_mined(folder: Path, route: str, frame: int, scenario: str) -> bool:
    """Says of a frame what LEAD's two tests of obstacles say: the scenario, how near its site is, what is ahead."""
    meta, boxes = (stored(folder, kind, route, frame) for kind in ("metas", "bboxes"))
    active, before = meta["current_active_scenario_type"], meta["previous_active_scenario_type"]
    if (before if active in (None, "NA") else active) != scenario:
        return False
    if scenario == "Accident":
        ids = set(meta["scenario_obstacles_ids"])
        return meta["dist_to_accident_site"] < 42 and any(box["id"] in ids and box["position"][0] > 0 for box in boxes)
    near = meta["dist_to_construction_site"] < 42
    return near and any(box.get("type_id") == CONE and box["position"][0] > -10 for box in boxes)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("use_waymo_e2e_data=true", "LTF=true", "use_planning_decoder=true"), "waymo_posttrain: LEAD has no such"),
        (("--collection", "navsim_pretrain"), "navsim_pretrain: LEAD draws from it only beside real data"),
        (("use_carla_data=false", "use_navsim_data=true", "LTF=true"), "LEAD has bucket files of CARLA data alone"),
    ],
)
def test_what_lead_would_never_read_is_refused_in_a_sentence(
    folder: Path, words: tuple[str, ...], sentence: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*.gz"))
    assert main(["buckets", "--write", "carla_root=carla_leaderboard2", *words]) == ExitCode.BAD_CONFIG
    error = capsys.readouterr().err
    assert sentence in error and len(error.splitlines()) == 1
    assert sorted(folder.rglob("*.gz")) == before


def test_written_again_it_has_the_same_bytes_and_changes_no_digest(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(folder, "full_posttrain", monkeypatch)
    before = file.read_bytes()
    assert written(folder, "full_posttrain", monkeypatch).read_bytes() == before
    assert not [path for path in file.parent.iterdir() if path.suffix != ".gz"]


def test_without_the_flag_nothing_is_written(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    shutil.rmtree(folder / "carla_leaderboard2/buckets", ignore_errors=True)
    assert main(["buckets", "carla_root=carla_leaderboard2"]) == ExitCode.DONE
    assert not (folder / "carla_leaderboard2/buckets").exists()


def test_a_recipe_without_such_files_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["buckets", "--write", "recipe=distill", "model=baseline", f"data_root={tmp_path}"]) == ExitCode.BAD_CONFIG
    )
    assert "--write: recipe distill has no bucket files of another program" in capsys.readouterr().err


def test_what_is_written_is_read_back_by_pickle_and_by_our_own_interpreter() -> None:
    value: dict[str, Any] = {
        "texts": ["", "aé", "x" * 300], "numbers": [0, -1, 2**40, True, False], "bytes": b"\x00\xff", "empty": {},
        "arrays": [np.array([b"ab", b"c"]), np.arange(3), np.array([], "S1"), np.zeros((2, 0), np.int64)],
    }  # fmt: skip
    stream = b"".join(pickled(value))
    for found in (pickle.loads(stream), plain_value(stream)):
        for mine, theirs in zip(found.pop("arrays"), value["arrays"], strict=True):
            np.testing.assert_array_equal(mine, theirs)
            assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        assert found == {name: held for name, held in value.items() if name != "arrays"}
    with pytest.raises(TypeError, match="a float is not written"):
        b"".join(pickled(LeadObject("a", "B", {"x": 1.5})))
