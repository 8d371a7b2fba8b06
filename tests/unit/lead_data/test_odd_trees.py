"""Verdicts, rows and metas of trees that no recording looks like: odd results, holes, both of LEAD's layouts."""

import json
import lzma
import pickle
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lead_testing import shared_dir
from lead_testing.logged import Logged
from lead_trainer.contract.raw_data import SourceFile
from lead_trainer.data.cache_tables import ROUTE_COLUMN, MetaColumns
from lead_trainer.errors import BadData
from lead_trainer.recipes.lead.buckets import fill_collection, judge_routes, verdicts
from lead_trainer.recipes.lead.config_values import load_config
from lead_trainer.recipes.lead.dataset_metas import planner_entries
from lead_trainer.recipes.lead.ingest.plain_pickle import read_plain
from lead_trainer.recipes.lead.ingest.route_tree import FRAME_FILES, frame_path, route_tree
from lead_trainer.recipes.lead.preparation import LeadPreparation
from lead_trainer.recipes.lead.prepare_metas import DROPPED, LAYOUT_MARK, meta_row, meta_table
from lead_trainer.recipes.lead.route_filter import Reason
from lead_trainer.recipes.lead.targets.view import NORMAL

SKIPS = {"skip_first_pretrain": 1, "skip_last_pretrain": 1, "skip_first_posttrain": 8, "skip_last_posttrain": 8}
REFUSED = ("Failed", "Failed - Agent couldn't be set up", "Failed - Simulation crashed", "Failed - Agent crashed")
STATUSES = ("Perfect", "Completed", *REFUSED, "Failed - Agent timed out", "Failed - Agent got blocked", "")
LISTS = ("collisions_layout", "collisions_vehicle", "red_light", "stop_infraction", "outside_route_lanes",
         "min_speed_infractions", "scenario_timeouts", "vehicle_blocked")  # fmt: skip


class Tree:
    """A tree in memory."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = dict(files)

    def files(self) -> list[SourceFile]:
        return [SourceFile(path, len(data), "e") for path, data in sorted(self._files.items())]

    def read(self, path: str) -> bytes:
        return self._files[path]


def results(outcome: str, score: float, counts: Mapping[str, int], **changes: Any) -> bytes:
    lists = {name: ["x"] * counts.get(name, 0) for name in LISTS}
    document = {
        "index": 0, "route_id": "r", "status": outcome, "num_infractions": sum(counts.values()),
        "infractions": lists, "scores": {"score_route": 100.0, "score_penalty": 1.0, "score_composed": score},
        **changes,
    }  # fmt: skip
    return json.dumps({key: value for key, value in document.items() if value is not None}).encode()


def route(name: str, verdict: bytes | None, boxes: int = 20, metas: bool = True) -> dict[str, bytes]:
    folder = f"data/Accident/{name}"
    files = {f"{folder}/bboxes/{frame:04d}.pkl": b"" for frame in range(boxes)}
    if verdict is not None:
        files[f"{folder}/results.json"] = verdict
    if metas:
        files[f"{folder}/metas/0000.pkl"] = b""
    return files


def reason(files: Mapping[str, bytes]) -> Reason:
    tree = Tree(files)
    (judged,) = judge_routes(tree, route_tree(tree.files()))
    return judged.reason


@settings(max_examples=300)
@given(
    status=st.sampled_from(STATUSES),
    score=st.sampled_from([0.0, 12.5, 99.999, 100.0]),
    infractions=st.dictionaries(st.sampled_from(LISTS), st.integers(0, 2)),
)
def test_a_route_is_kept_exactly_by_leads_rules(status: str, score: float, infractions: dict[str, int]) -> None:
    total, slow = sum(infractions.values()), infractions.get("min_speed_infractions", 0)
    lanes = infractions.get("outside_route_lanes", 0)
    clean = (
        score == 100
        or status == "Perfect"
        or (score < 100 and total == slow)
        or (status == "Completed" and total == slow + lanes)
    )
    kept = reason(route("r", results(status, score, infractions))) is Reason.KEPT
    assert kept == (clean and status not in REFUSED)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (route("r", None), Reason.NO_RESULTS),
        (route("r", results("Perfect", 100, {}), metas=False), Reason.NO_METAS),
        (route("r", results("Perfect", 100, {}), boxes=0), Reason.KEPT),
        (route("r", results("Failed", 100.0, {})), Reason.FAILED),
        (route("r", results("Failed - Simulation crashed", 100.0, {})), Reason.SIMULATION_CRASHED),
        (route("r", results("Failed - Agent crashed", 0.0, {})), Reason.AGENT_CRASHED),
        (route("r", results("Failed - Agent couldn't be set up", 0.0, {})), Reason.AGENT_NOT_SET_UP),
        (route("r", results("Completed", 60.0, {"red_light": 1})), Reason.INFRACTIONS),
        (route("r", results("Perfect", 60.0, {"red_light": 1})), Reason.KEPT),  # the word decides
    ],
)
def test_every_verdict_has_its_code(files: dict[str, bytes], expected: Reason) -> None:
    assert reason(files) is expected


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b"null", b"\xff\xfe", b"NaN", b"[" * 100_000,
        results("Perfect", 100, {}, scores=None), results("Perfect", 100, {}, scores={"score_composed": None}),
        results("Perfect", 100, {}, infractions=[]),
        results("Perfect", 100, {}, infractions={"min_speed_infractions": 3}),
        results("Perfect", 100, {}, num_infractions="many"), results("Perfect", 100, {}, status=None),
    ],
    ids=range(13),
)  # fmt: skip
def test_results_that_are_no_verdict_are_named(data: bytes) -> None:
    with pytest.raises(BadData, match=r"file data/Accident/r/results\.json is not a route verdict"):
        reason(route("r", data))


@given(st.integers(0, 40))
def test_frames_are_what_the_skips_leave_for_any_length(boxes: int) -> None:
    tree = Tree(route("r", results("Perfect", 100, {}), boxes=boxes))
    judged = judge_routes(tree, route_tree(tree.files()))
    for name, first, last in (("full_pretrain", 1, 1), ("full_posttrain", 8, 8)):
        filled = fill_collection(name, judged, SKIPS)
        assert [key.frame for key in filled.buckets[0]] == list(range(first, boxes - last))
        assert filled.counters.trainable_routes == 1


def test_town13_is_held_out_by_name_and_the_rest_is_drawn_up_to_its_size() -> None:
    clean = results("Perfect", 100, {})
    names = ("Town13_a", "999_Rep-1_Town13_1", "Town12_a", "Town130", "town13_small")
    tree = Tree({path: data for name in names for path, data in route(name, clean, boxes=12).items()})
    judged = judge_routes(tree, route_tree(tree.files()))
    filled = fill_collection("town13_heldout_pretrain", judged, SKIPS)
    held = {key.route.rsplit("/", 1)[-1] for key in filled.buckets[0]}
    assert held == {"Town13_a", "999_Rep-1_Town13_1", "Town130"}  # LEAD looks for the text anywhere in the path
    assert filled.mixture == (0.0, 50 / 20)


def test_a_tree_of_town13_alone_leaves_nothing_to_train_on() -> None:
    tree = Tree(route("Town13_a", results("Perfect", 100, {})))
    filled = fill_collection("town13_heldout_pretrain", judge_routes(tree, route_tree(tree.files())), SKIPS)
    assert filled.counters.trainable_frames == 0 and len(filled.buckets[0]) == 18


def test_stray_files_and_foreign_folders_do_no_harm() -> None:
    files = route("r", results("Perfect", 100, {})) | {
        "README.md": b"", "data/note.txt": b"", "data/Accident/stray.zip": b"", "zip/a.zip": b"", "data/Empty/x/y": b"",
    }  # fmt: skip
    tree = Tree(files)
    judged = {route.path: route.reason for route in judge_routes(tree, route_tree(tree.files()))}
    assert judged == {
        "data/Accident/r": Reason.KEPT,
        "data/Accident/stray.zip": Reason.NO_RESULTS,
        "data/Empty/x": Reason.NO_RESULTS,
    }


def test_a_scenario_lead_does_not_know_is_trained_on_and_counted(logged: Logged) -> None:
    clean = results("Perfect", 100, {})
    own = {path.replace("Accident", "MyScenario"): data for path, data in route("r", clean).items()}
    both = own | route("r", clean)
    whole = {
        frame_path(path.rsplit("/", 2)[0], folder, int(Path(path).stem)): b""
        for path in both if "/bboxes/" in path for folder in (*FRAME_FILES, "metas")
    }  # fmt: skip
    preparation, tree = LeadPreparation(), Tree(whole | both)
    scan = preparation.scan(tree, preparation.config_keys({}), ["full_pretrain"])
    assert [(v.kept, v.reason) for v in scan.verdicts] == [(True, "kept"), (True, "kept_unknown_scenario")]
    assert len(scan.samples) == 36
    assert "scenario MyScenario is not in LEAD's list; its 1 routes are used" in str(logged)
    assert verdicts(judge_routes(tree, route_tree(tree.files())))[1].reason == "kept_unknown_scenario"


@cache
def recorded() -> dict[str, Any]:
    root = shared_dir() / "golden/lead_data/carla_leaderboard2"
    path = sorted(root.glob("data/*/*101*/metas/0009.pkl"))[0]
    return dict(read_plain(path.read_bytes(), "m"))


def newer() -> dict[str, Any]:
    """Returns the same meta as LEAD's later collections write it: 3 s of future, and the mark of the layout."""
    meta = {key: value for key, value in recorded().items() if key not in DROPPED}
    meta |= {LAYOUT_MARK: {"save_depth_resolution_ratio": 4}, "filtered_pos_global": meta["pos_global"]}
    return meta | {key: meta[key][:61] for key in ("future_positions", "future_yaws")}


def test_both_of_leads_layouts_are_read() -> None:
    table = meta_table([meta_row(recorded(), 9, 3.25, "old"), meta_row(newer(), 9, 3.25, "new")])
    for name in DROPPED:
        assert table.column(name).to_pylist()[1] is None
    for name in table.column_names:
        if name not in DROPPED and not name.startswith("future_"):
            first, second = table.column(name).to_pylist()
            assert first == second, name
    assert len(table.column("future_yaws").to_pylist()[1]) == 61


def test_metas_in_64_bits_keep_every_digit() -> None:
    exact = np.full((101, 2), 1 / 3)
    meta = {**recorded(), "route": exact[:20], "future_positions": exact, "future_yaws": exact[:, 0]}
    table = meta_table([meta_row(meta, 9, 3.25, "m")])
    for name in ("route", "future_positions", "future_yaws"):
        assert set(table.column(name).to_pylist()[0]) == {1 / 3}


@pytest.mark.parametrize("name", ["brake", "target_speed"])
def test_a_meta_without_what_the_planner_learns_is_refused_by_field(name: str) -> None:
    meta = {key: value for key, value in recorded().items() if key != name}
    table = meta_table([meta_row(meta, 9, 3.25, "m")])
    row = MetaColumns(table.append_column(ROUTE_COLUMN, [["r"]])).row("r", 9)
    with pytest.raises(BadData, match=f"no field {name}, which the planner needs; collect the route again"):
        planner_entries(row, NORMAL, load_config({"use_planning_decoder": True}), [5, 10])
    planner_entries(row, NORMAL, load_config({}), [5, 10])
    if name == "target_speed":
        planner_entries(row, NORMAL, load_config({"use_planning_decoder": True, "predict_target_speed": False}), [5])


def test_a_meta_of_neither_layout_is_refused_by_field() -> None:
    meta = {key: value for key, value in newer().items() if key != LAYOUT_MARK}
    with pytest.raises(BadData, match=r"m\.pkl has no field 'reduce_speed_\w+', .* layout without dataset_information"):
        meta_row(meta, 0, 3.25, "m.pkl")
    with pytest.raises(BadData, match=r"no field 'speed', .* layout with dataset_information"):
        meta_row({key: value for key, value in newer().items() if key != "speed"}, 0, 3.25, "m.pkl")


@settings(max_examples=60)
@given(
    st.sampled_from(sorted(k for k in ("speed", "pos_global", "next_target_points_3.25", "next_commands_3.25", "route",
                                       "ego_lane_id", "theta", "future_positions", "town", "brake"))),
    st.one_of(st.none(), st.text(max_size=3), st.lists(st.none(), max_size=2), st.just(float("nan")), st.just({})),
)  # fmt: skip
def test_a_spoiled_meta_is_read_or_named_and_never_a_crash(key: str, value: Any) -> None:
    meta = read_plain(lzma.compress(pickle.dumps({**recorded(), key: value})), "m")
    try:
        meta_table([meta_row(meta, 0, 3.25, "route/metas/0000.pkl")])
    except BadData as error:
        assert "route/metas/0000.pkl" in str(error)
