"""`lead evaluate`: the numbers it prints are those the challenges' own kits give its submission file."""

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from lead_testing.forecasting_trees import NUSCENES_LOCATION
from lead_testing.oracles import ask
from lead_trainer.commands.evaluate import evaluate_checkpoint
from lead_trainer.errors import BadConfig
from lead_trainer.metrics.forecasting import Forecast, metrics_at
from lead_trainer.recipes.distill.benchmarks import baselines
from lead_trainer.recipes.distill.benchmarks.measure import Results
from lead_trainer.recipes.distill.config import DistillConfig
from lead_trainer.recipes.distill.config_values import load_config
from lead_trainer.recipes.distill.model import build_model

AV2 = """
from pathlib import Path
import numpy as np
from av2.datasets.motion_forecasting.eval import metrics
from av2.datasets.motion_forecasting.eval.submission import ChallengeSubmission
from av2.datasets.motion_forecasting.scenario_serialization import load_argoverse_scenario_parquet
from av2.map.map_api import ArgoverseStaticMap, DrivableAreaMapLayer
found = {"minADE_6": [], "minFDE_6": [], "MR_6": [], "brier_minFDE_6": [], "OffRoadRate": []}
for scenario, (p, tracks) in ChallengeSubmission.from_parquet(Path(question["submission"])).predictions.items():
    truth = load_argoverse_scenario_parquet(next(Path(question["tree"]).glob(f"val/{scenario}/scenario_*.parquet")))
    (track, modes), = tracks.items()
    focal, = [t for t in truth.tracks if t.track_id == track]
    future = np.array([s.position for s in focal.object_states if s.timestep >= 50])
    fde = metrics.compute_fde(modes, future)
    found["minADE_6"].append(metrics.compute_ade(modes, future).min())
    found["minFDE_6"].append(fde.min())
    found["MR_6"].append(metrics.compute_is_missed_prediction(modes, future).all())
    found["brier_minFDE_6"].append(metrics.compute_brier_fde(modes, future, p).min())
    city = ArgoverseStaticMap.from_json(next(Path(question["tree"]).glob(f"val/{scenario}/log_map_archive_*.json")))
    road = DrivableAreaMapLayer.from_vector_data(list(city.vector_drivable_areas.values()))
    found["OffRoadRate"].append(np.mean([(road.get_raster_values_at_coords(m, 0) == 0).any() for m in modes]))
answer = {name: float(np.mean(values)) for name, values in found.items()}
"""

NUSCENES = """
import json
from types import SimpleNamespace
import numpy as np
from nuscenes import NuScenes
from nuscenes.eval.prediction.compute_metrics import compute_metrics
from nuscenes.eval.prediction.metrics import MinADEK, MinFDEK, MissRateTopK, OffRoadRate, RowMean
from nuscenes.map_expansion.map_api import NuScenesMap
from nuscenes.prediction import PredictHelper
helper = PredictHelper(NuScenes("v1.0-mini", question["tree"], verbose=False))
off_road = OffRoadRate.__new__(OffRoadRate)  # its constructor wants the maps of all four cities
off_road._aggregators, off_road.helper = [RowMean()], helper
off_road.pixels_per_meter, off_road.number_of_points = 10, 200
city = NuScenesMap(question["tree"], question["location"])
mask = city.get_map_mask((200, 150, 300, 400), 0, ["drivable_area"], (3000, 4000))[0]
off_road.drivable_area_polygons = {question["location"]: mask}
ks, mean = [1, 5, 6], [RowMean()]
kinds = [MinADEK(ks, mean), MinFDEK(ks, mean), MissRateTopK(ks, mean, 2), off_road]
found = compute_metrics(json.load(open(question["submission"])), helper, SimpleNamespace(seconds=6, metrics=kinds))
answer = {name: values["RowMean"] for name, values in found.items()}
"""


@pytest.fixture
def checkpoint(tmp_path: Path) -> Callable[..., Path]:
    """Writes a student with fresh weights and its config, as a run's folder holds them."""

    def write(**values: Any) -> Path:
        config: DistillConfig = load_config({"model": "baseline", "model_size": "tiny", "num_modes": 6, **values})
        torch.manual_seed(0)
        path = tmp_path / "baseline_seed42_best.pt"
        torch.save(build_model(config, {}).state_dict(), path)
        (tmp_path / "config.json").write_text(json.dumps(config.model_dump(mode="json")))
        return path

    return write


def without_store() -> Mapping[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("LEAD_")}


def test_d_45_argoverse2_numbers_are_those_av2_gives_the_submission(
    argoverse2_tree: Path, checkpoint: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = checkpoint(benchmark="argoverse2", input_type="vector", argoverse2_root=str(argoverse2_tree))
    results = evaluate_checkpoint(path, ["batch_size=2"], "val", None, without_store())
    written = path.with_name("baseline_seed42_best_val_argoverse2_submission.parquet")
    theirs = ask(AV2, {"submission": str(written), "tree": str(argoverse2_tree)})
    ours = results.overall["model"].means()
    assert {name: pytest.approx(value, abs=1e-4) for name, value in theirs.items()} == {n: ours[n] for n in theirs}
    told = capsys.readouterr().out
    assert all(name in told for name in ("constant velocity", "physics oracle", "minADE_6_bestFDE", "vehicle"))
    assert_baselines_are_there(results)


def test_d_45_nuscenes_numbers_are_those_the_devkit_gives_the_submission(
    nuscenes_tree: Path, checkpoint: Callable[..., Path]
) -> None:
    path = checkpoint(benchmark="nuscenes", input_type="raster", nuscenes_version="v1.0-mini", raster_pixels=64,
                      raster_metres_per_pixel=0.5, nuscenes_root=str(nuscenes_tree))  # fmt: skip
    target = path.with_name("challenge.json")
    results = evaluate_checkpoint(path, ["batch_size=3"], "val", target, without_store())
    assert results.agents == 8 == len(json.loads(target.read_text()))
    question = {"submission": str(target), "tree": str(nuscenes_tree), "location": NUSCENES_LOCATION}
    theirs, ours = ask(NUSCENES, question), results.overall["model"].means()
    for kind, name in (("MinADEK", "minADE"), ("MinFDEK", "minFDE"), ("MissRateTopK_2", "MissRate_2")):
        assert [ours[f"{name}_{k}"] for k in (1, 5, 6)] == pytest.approx(theirs[kind], abs=1e-4)
    assert ours["OffRoadRate"] == pytest.approx(theirs["OffRoadRate"][0], abs=1e-9)
    assert results.classes.means()["minADE_1/vehicle.car"] > 0
    assert_baselines_are_there(results)


def assert_baselines_are_there(results: Results) -> None:
    means = {name: totals.means() for name, totals in results.overall.items()}
    assert set(means) == {"model", "constant velocity", "constant velocity and heading", "physics oracle"}
    for tags in means.values():
        assert {"minADE_1", "minADE_5", "minADE_6", "minFDE_6_bestFDE"} & set(tags) >= {"minADE_1", "minADE_6"}
        assert not any(math.isnan(value) for value in tags.values())
    assert means["physics oracle"]["minADE_1"] <= means["constant velocity and heading"]["minADE_1"]


def test_the_test_split_gives_a_submission_and_no_numbers(
    argoverse2_tree: Path, checkpoint: Callable[..., Path]
) -> None:
    path = checkpoint(benchmark="argoverse2", input_type="vector", argoverse2_root=str(argoverse2_tree))
    results = evaluate_checkpoint(path, [], "test", None, without_store())
    assert results.agents == 1 and math.isnan(results.overall["model"].means()["minADE_1"])


@pytest.mark.parametrize("missing", ["weights", "config.json", "clips", "split"])
def test_what_cannot_be_evaluated_is_named(missing: str, checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    path = checkpoint()
    if missing == "weights":
        path = tmp_path / "none.pt"
    if missing == "config.json":
        (tmp_path / "config.json").unlink()
    told = {"weights": "there is no file", "config.json": "there is no", "clips": "there is no file .*ego_history",
            "split": "collections: found 'test'"}  # fmt: skip
    words = ["offline=true"] if missing == "split" else [f"data_root={tmp_path}"]
    with pytest.raises(BadConfig, match=told[missing]):
        evaluate_checkpoint(path, words, "test" if missing == "split" else "val", None, without_store())


def test_baselines_go_straight_turn_and_never_learn() -> None:
    state = baselines.Kinematics.of(torch.tensor([[10.0, 0.0, 0.0, 10.0, 0.0], [10.0, 2.0, 0.5, 9.0, 1.0]]))
    straight = baselines.constant_velocity(state, 4, 0.5)
    assert straight[0, -1].tolist() == [20.0, 0.0] and straight[1, -1].tolist() == [18.0, 2.0]
    assert baselines.constant_velocity_heading(state, 4, 0.5)[1, -1].tolist() == [20.0, 0.0]
    assert baselines.constant_acceleration_heading(state, 4, 0.5)[1, -1].tolist() == [24.0, 0.0]
    turned = baselines.constant_speed_yaw_rate(state, 4, 0.5)
    assert turned[1, 0].tolist() == [5.0, 0.0] and turned[1, -1, 1] > 0
    truth = baselines.constant_acceleration_yaw_rate(state, 4, 0.5)
    oracle = baselines.physics_oracle(state, truth, 0.5)
    assert torch.equal(oracle[1], truth[1])
    certain = metrics_at(baselines.one_mode(oracle), truth, 1)
    assert certain["brier_minFDE_1"][1] == 0.0 and isinstance(baselines.one_mode(oracle), Forecast)
