"""Result files of CARLA's Leaderboard become numbers; what has no result is counted and named."""

import json
from pathlib import Path
from typing import Any

import pytest

from lead_protocol.leaderboard_results import MAX_RESULT_BYTES, NamedResults, NoResults, parse_results, summarise
from lead_testing import REFERENCE
from lead_trainer.closed_loop.result_folder import read_results
from lead_trainer.errors import BadData

REAL = REFERENCE / "realdata/carla"
NO_RECORD = ["24759", "25378", "25381", "25857", "25955", "26393", "26956", "26966", "28048"]  # of LEAD's TFv6


def a_record(route: str = "RouteScenario_1_rep0", **members: Any) -> dict[str, Any]:
    return {
        "route_id": route,
        "status": "Completed",
        "infractions": {"collisions_vehicle": [], "red_light": [], "min_speed_infractions": ["slow"]},
        "scores": {"score_route": 100.0, "score_penalty": 1.0, "score_composed": 100.0},
        "meta": {"route_length": 500.0, "duration_game": 60.0},
        **members,
    }


def a_file(*records: dict[str, Any], due: int | None = None) -> bytes:
    progress = [len(records), len(records) if due is None else due]
    return json.dumps({"_checkpoint": {"progress": progress, "records": list(records)}, "x": [None]}).encode()


def summary_of(*files: bytes) -> Any:
    return summarise(NamedResults(f"file {number}", parse_results(data)) for number, data in enumerate(files))


def test_scores_are_means_over_records_and_shares_are_of_all_routes() -> None:
    half = {"score_route": 50.0, "score_penalty": 0.6, "score_composed": 30.0}
    crash = a_record("b", status="Failed - Agent got blocked", scores=half, infractions={"vehicle_blocked": ["here"]})
    found = summary_of(a_file(a_record("a")), a_file(crash), a_file(due=1))
    assert (found.routes, found.recorded, found.finished, found.interventions) == (3, 2, 1, 1)
    assert (found.driving_score, found.driving_score_of_all) == (65.0, pytest.approx(130.0 / 3))
    assert (found.route_completion, found.infraction_penalty) == (75.0, 0.8)
    assert found.driven_km == pytest.approx(0.75)
    assert found.infractions_per_km["min_speed_infractions"] == pytest.approx(1 / 0.75)
    assert found.success == found.success_bench2drive == pytest.approx(1 / 3)
    assert found.without_record == ["file 2"]


@pytest.mark.parametrize(
    ("infractions", "perfect", "bench2drive"),
    [
        ({"min_speed_infractions": ["slow"]}, 1.0, 1.0),
        ({"stop_infraction": ["a sign"]}, 1.0, 0.0),
        ({"red_light": ["a light"]}, 0.0, 0.0),
        ({"collisions_layout": ["a wall"]}, 0.0, 0.0),
    ],
)
def test_n_59_success_has_two_rules(infractions: dict[str, list[str]], perfect: float, bench2drive: float) -> None:
    found = summary_of(a_file(a_record(infractions=infractions)))
    assert (found.success, found.success_bench2drive) == (perfect, bench2drive)


def test_a_route_that_stands_twice_is_refused() -> None:
    with pytest.raises(NoResults, match="route a has 2 records"):
        summary_of(a_file(a_record("a")), a_file(a_record("a"), a_record("b")))


SCORES = {"score_route": 1.0, "score_penalty": 1.0, "score_composed": 1.0}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{}", "_checkpoint: Field required"),
        (b"[" * 100_000, "Invalid JSON"),
        (a_file(a_record(scores={**SCORES, "score_route": 101.0})), "score_route.*found 101.0"),
        (a_file(a_record(scores={**SCORES, "score_penalty": float("nan")})), "score_penalty"),
        (a_file(a_record(scores={**SCORES, "score_composed": "100"})), "score_composed.*found '100'"),
        (a_file(a_record(infractions={"red_light": 3})), "infractions.red_light.*found 3"),
        (a_file(a_record(infractions={"red_light": ["x" * 5000]})), "infractions.red_light.0"),
        (a_file(a_record(route="")), "route_id"),
        (a_file(due=10**9), "progress.1"),
        (b" " * (MAX_RESULT_BYTES + 1), "expected at most"),
    ],
)
def test_what_is_no_result_is_refused_by_its_member(data: bytes, message: str) -> None:
    with pytest.raises(NoResults, match=message):
        parse_results(data)


def test_a_folder_is_read_without_following_links(tmp_path: Path) -> None:
    (tmp_path / "outside.json").write_bytes(a_file(a_record("outside")))
    folder = tmp_path / "results"
    (folder / "route_1").mkdir(parents=True)
    (folder / "route_1/result.json").write_bytes(a_file(a_record("inside")))
    (folder / "route_1/metadata.json").write_text('{"weather": 3}')
    (folder / "link.json").symlink_to(tmp_path / "outside.json")
    assert read_results(folder).summary.routes == 1


def test_a_folder_without_results_and_a_corrupt_one_are_named(tmp_path: Path) -> None:
    (tmp_path / "video.mp4").write_bytes(b"x")
    with pytest.raises(BadData, match=r"no result file of the Leaderboard.*found video\.mp4"):
        read_results(tmp_path)
    (tmp_path / "result.json").write_bytes(a_file(a_record(scores={})))
    with pytest.raises(BadData, match=r"result\.json is no result file.*score_route: Field required"):
        read_results(tmp_path)


def test_files_without_the_record_of_a_route_and_files_that_are_too_large_are_no_result(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_bytes(a_file())
    with pytest.raises(BadData, match="no result file holds the record of a route, so nothing was driven"):
        read_results(tmp_path)
    (tmp_path / "result.json").write_bytes(a_file(a_record()).ljust(MAX_RESULT_BYTES + 1))
    with pytest.raises(BadData, match=r"result\.json has 16777217 bytes, a result file has at most 16777216"):
        read_results(tmp_path)


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no real result files in {REAL}")
def test_real_bench2drive_results_give_the_authors_means_and_name_missing_routes() -> None:
    """Means over the records, which is also the mean of the authors' table for the expert (its zeros left out)."""
    student = read_results(REAL / "bench2drive_tfv6_results/results/per_route").summary
    assert (student.routes, student.recorded, student.finished) == (220, 211, 192)
    assert student.driving_score == pytest.approx(89.38114906161138, abs=1e-9)
    assert student.without_record == NO_RECORD and len(student.crashed) == 9
    expert = read_results(REAL / "bench2drive_tfv6_results/results/expert/per_route").summary
    assert (expert.routes, expert.recorded) == (220, 208)
    assert expert.driving_score_of_all == pytest.approx(90.49011177272727, abs=1e-9)


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no real result files in {REAL}")
def test_a_real_file_of_leaderboard_1_gives_its_own_global_scores() -> None:
    folder = REAL / "longest6_autopilot"
    own = json.loads((folder / "autopilot_longest6.json").read_text())["_checkpoint"]["global_record"]["scores"]
    found = read_results(folder).summary
    assert found.driving_score == pytest.approx(own["score_composed"], abs=1e-9)
    assert found.route_completion == pytest.approx(own["score_route"], abs=1e-9)
