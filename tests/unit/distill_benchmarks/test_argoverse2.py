"""Argoverse 2: a tree becomes samples in the focal frame, bad scenarios are named, submissions are valid."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lead_testing.forecasting_trees import write_argoverse2_tree
from lead_testing.oracles import ask
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.recipes.distill.benchmarks.agent_frame import AgentFrame
from lead_trainer.recipes.distill.benchmarks.argoverse2.dataset import Argoverse2Samples
from lead_trainer.recipes.distill.benchmarks.argoverse2.encoder import VectorEncoder
from lead_trainer.recipes.distill.benchmarks.argoverse2.preparation import Argoverse2Preparation
from lead_trainer.recipes.distill.benchmarks.argoverse2.scenario import Scenario, read_scenario
from lead_trainer.recipes.distill.benchmarks.argoverse2.submission import submission
from lead_trainer.recipes.distill.benchmarks.argoverse2.vector_map import read_vector_map, resampled
from lead_trainer.recipes.distill.benchmarks.forecasts import AgentForecast
from lead_trainer.recipes.distill.config import DistillConfig
from lead_trainer.recipes.distill.config_values import load_config

PREPARATION = Argoverse2Preparation()
ALL = ["train", "val", "windows_train"]
VALUES = {"model": "baseline", "benchmark": "argoverse2", "input_type": "vector", "model_size": "tiny"}


def config(**values: Any) -> DistillConfig:
    return load_config({**VALUES, **values})


@pytest.fixture(scope="module")
def cache(argoverse2_tree: Path, build_cache: Callable[..., Any]) -> Any:
    return build_cache(PREPARATION, argoverse2_tree, ALL, VALUES)


def scenario_at(root: Path, folder: str) -> Scenario:
    path = next((root / folder).glob("scenario_*.parquet"))
    return read_scenario(path.read_bytes(), str(path))


def test_d_44_fifty_past_and_sixty_future_steps_of_agents_and_lanes_in_the_focal_frame(
    cache: Any, argoverse2_tree: Path
) -> None:
    chosen = config(max_agents=5, max_polylines=7)
    samples = Argoverse2Samples(chosen, cache, "train")
    assert len(samples) == 2 and samples.epoch_draw(0).tolist() == [0, 1]
    sample = samples.load(0, 3)
    assert sample["agents"].shape == (5, 50, 6) and sample["lines"].shape == (7, 20, 2)
    assert sample["target_xy"].shape == (60, 2) and sample["target_valid"].all()
    scenario = scenario_at(argoverse2_tree, "train/train-0000-scenario")
    row = scenario.track("focal")
    frame = AgentFrame(*scenario.xy[row, 49], scenario.heading[row, 49])
    np.testing.assert_allclose(sample["agents"][0, :, :2], frame.points_in(scenario.xy[row, :50]), atol=1e-4)
    np.testing.assert_allclose(sample["agents"][0, 49, :4], [0, 0, 1, 0], atol=1e-6)
    np.testing.assert_allclose(frame.points_out(sample["target_xy"]), scenario.xy[row, 50:], atol=1e-4)
    assert sample["target_xy"][-1, 0] > 5  # ahead is x
    np.testing.assert_allclose(sample["speed"], np.linalg.norm(scenario.velocity[row, 49]), rtol=1e-6)
    nearest = np.argsort(np.linalg.norm(scenario.xy[:, 49] - scenario.xy[row, 49], axis=1))
    assert nearest[0] == row and sample["agent_types"].tolist() == [*(scenario.types[nearest] + 1)]
    fragment = nearest.tolist().index(scenario.track("103"))
    assert sample["agents_seen"][fragment].tolist() == [False] * 30 + [True] * 20
    assert (sample["line_types"] > 0).sum() == 6 and (sample["lines"][6] == 0).all()


def test_windows_take_every_whole_track_at_every_second(cache: Any) -> None:
    samples = Argoverse2Samples(config(all_agents=True), cache, "train")
    names = [samples.name(index) for index in range(len(samples))]
    assert len(names) == 2 * 4 * 5  # scenarios, tracks that are whole, present steps 9 … 49
    assert "train/train-0000-scenario/104 step 9" in names and not any("103" in name for name in names)
    early = samples.load(names.index("train/train-0000-scenario/101 step 9"), 0)
    assert early["agents_seen"][0].tolist() == [False] * 40 + [True] * 10 and early["target_valid"].all()


def test_the_test_split_has_samples_without_a_future(argoverse2_tree: Path, build_cache: Callable[..., Any]) -> None:
    cache = build_cache(PREPARATION, argoverse2_tree, ["test"], VALUES)
    sample = Argoverse2Samples(config(), cache, "test").load(0, 0)
    assert not sample["target_valid"].any() and not np.isnan(sample["target_xy"]).any()


def test_d_44_a_scenario_that_cannot_be_used_is_a_recorded_failure_and_never_replaced(tmp_path: Path) -> None:
    folders = write_argoverse2_tree(tmp_path, {"train": 5})
    next((tmp_path / folders[0]).glob("*.json")).unlink()
    next((tmp_path / folders[1]).glob("*.parquet")).write_bytes(b"PAR1 not")
    short = write_argoverse2_tree(tmp_path / "other", {"train": 1}, steps=100)[0]
    broken = next((tmp_path / folders[2]).glob("*.parquet"))
    broken.write_bytes(next((tmp_path / "other" / short).glob("*.parquet")).read_bytes())
    truncated = next((tmp_path / folders[3]).glob("*.json"))
    truncated.write_bytes(truncated.read_bytes()[:-100])
    scan = PREPARATION.scan(FolderTree(tmp_path), PREPARATION.config_keys(VALUES), ["train"])
    reasons = {verdict.route: verdict.reason for verdict in scan.verdicts}
    bad = ("no_map", "unreadable", "focal_track_incomplete", "unreadable_map", "kept")
    assert reasons == dict(zip(folders, bad, strict=True))
    assert [key.route for key in scan.samples] == [f"{folders[4]}/focal"]


def test_keys_that_the_records_depend_on_are_in_the_digest_and_no_others() -> None:
    keys = PREPARATION.config_keys(VALUES)
    assert set(keys) == {"vector_radius_m", "polyline_points"}
    assert PREPARATION.config_keys({"vector_radius_m": 50.0}) != keys
    assert PREPARATION.config_keys({"lr": 1e-3, "num_modes": 6, "preset": "tiny"}) == keys
    with pytest.raises(BadConfig, match="vector_radius_m"):
        PREPARATION.config_keys({"vector_radius": 50.0})


def test_a_run_with_other_values_than_the_cache_and_an_unknown_collection_are_refused(cache: Any) -> None:
    with pytest.raises(BadConfig, match="polyline_points: found 5, the cache has 20"):
        Argoverse2Samples(config(polyline_points=5), cache, "train")
    with pytest.raises(BadConfig, match="did you mean train"):
        PREPARATION.scan(FolderTree("."), {}, ["trian"])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("column", "lacks the columns"),
        ("timestep", "timesteps 0…110"),
        ("twice", "two states"),
        ("type", "object type"),
    ],
)
def test_a_spoiled_parquet_is_named_with_what_is_wrong(tmp_path: Path, damage: str, message: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = write_argoverse2_tree(tmp_path, {"train": 1})[0]
    path = next((tmp_path / folder).glob("*.parquet"))
    table = pq.read_table(path)
    if damage == "column":
        table = table.drop_columns(["heading"])
    elif damage == "twice":
        table = pa.concat_tables([table, table.slice(0, 1)])
    else:
        name, value = {"timestep": ("timestep", 110), "type": ("object_type", "spaceship")}[damage]
        values = table.column(name).to_pylist()
        table = table.set_column(table.column_names.index(name), name, [[*values[:-1], value]])
    pq.write_table(table, path)
    with pytest.raises(BadData, match=message):
        read_scenario(path.read_bytes(), str(path))


def test_a_map_without_a_lane_type_is_named() -> None:
    with pytest.raises(BadData, match=r"file m\.json is not a vector map"):
        read_vector_map(json.dumps({"lane_segments": {"1": {}}}).encode(), "m.json")


def test_resampled_lines_keep_their_ends_and_equal_distances() -> None:
    points = resampled(np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 3.0]]), 5)
    np.testing.assert_allclose(points, [[0, 0], [1, 0], [1, 1], [1, 2], [1, 3]], atol=1e-12)


def test_d_40_the_vector_encoder_gives_a_token_an_agent_and_a_line_and_ignores_what_empty_rows_hold(cache: Any) -> None:
    chosen = config(max_agents=8, max_polylines=9)
    samples = Argoverse2Samples(chosen, cache, "train")
    batch = {key: torch.from_numpy(np.stack([samples.load(0, 0)[key], samples.load(1, 0)[key]]))
             for key in ("agents", "agents_seen", "agent_types", "lines", "line_types")}  # fmt: skip
    torch.manual_seed(0)
    encoder = VectorEncoder(chosen)
    tokens = encoder(batch)
    assert tokens.shape == (2, 17, chosen.size.width) and tokens.isfinite().all()
    spoiled = {**batch, "lines": batch["lines"].clone()}
    spoiled["lines"][batch["line_types"] == 0] = 99.0
    spoiled["agents"] = torch.where(batch["agents_seen"][..., None], batch["agents"], 99.0)
    assert torch.equal(encoder(spoiled), tokens)
    assert torch.equal(tokens[0, 5], tokens[0, 6])  # both empty
    tokens.sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())


SUBMITTED = """
from pathlib import Path
from av2.datasets.motion_forecasting.eval.submission import ChallengeSubmission
read = ChallengeSubmission.from_parquet(Path(question))
answer = {scenario: {"p": p.tolist(), "tracks": {track: modes.tolist() for track, modes in tracks.items()}}
          for scenario, (p, tracks) in read.predictions.items()}
"""


def test_d_44_the_submission_passes_the_challenges_own_reader(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    forecasts = [AgentForecast(f"s{n}", f"t{n}", random.normal(size=(modes, 60, 2)), random.dirichlet(np.ones(modes)))
                 for n, modes in enumerate((6, 1))]  # fmt: skip
    path = tmp_path / "submission.parquet"
    path.write_bytes(submission(forecasts))
    read = ask(SUBMITTED, str(path))
    for forecast in forecasts:
        order = np.argsort(-forecast.probabilities)
        np.testing.assert_array_equal(read[forecast.scene]["p"], forecast.probabilities[order])
        np.testing.assert_array_equal(read[forecast.scene]["tracks"][forecast.agent], forecast.modes[order])


@pytest.mark.parametrize(
    ("modes", "probabilities", "message"),
    [((7, 60, 2), [1 / 7] * 7, "shape"), ((1, 59, 2), [1.0], "shape"), ((2, 60, 2), [0.5, 0.4], "with sum 1")],
)
def test_a_forecast_that_breaks_the_challenges_rules_is_refused(
    modes: tuple[int, ...], probabilities: list[float], message: str
) -> None:
    with pytest.raises(BadData, match=message):
        submission([AgentForecast("s", "t", np.zeros(modes), np.array(probabilities))])
