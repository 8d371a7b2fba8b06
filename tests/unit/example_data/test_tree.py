"""Writing an example tree: repeatable, resumable, careful with what is there, and the same in a store."""

import json
from pathlib import Path

import pytest

from lead_protocol.store.folder import FolderStore
from lead_trainer.example_worlds.lead import (
    ExampleDataError,
    write_example_tree,
    write_example_tree_to_store,
)


def _content(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("two", 1), ("other", 2)):
        write_example_tree(tmp_path / name, routes=1, frames=2, seed=seed)
    one, two, other = (_content(tmp_path / name) for name in ("one", "two", "other"))
    assert one == two
    changed = {Path(name).parent.name for name in one.keys() & other.keys() if one[name] != other[name]}
    assert {"rgb", "semantics", "depth", "lidar", "bboxes", "metas", "radar", "hdmap"} <= changed


def test_the_summary_counts_what_was_written(tree: Path) -> None:
    summary = write_example_tree(tree, routes=4, frames=7, seed=3, failed_routes=1)
    content = _content(tree)
    assert (summary.routes, summary.failed_routes, summary.frames) == (4, 1, 28)
    assert (summary.files, summary.size_bytes) == (len(content), sum(map(len, content.values())))
    assert len(summary.scenarios) == 4


def test_failed_routes_have_verdicts_that_leads_filter_refuses(tree: Path) -> None:
    verdicts = [json.loads(path.read_text()) for path in sorted(tree.glob("data/*/*/results.json"))]
    failed = [verdict for verdict in verdicts if verdict["index"] == 3]
    kept = [verdict for verdict in verdicts if verdict["index"] != 3]
    assert all(verdict["status"] == "Perfect" and verdict["scores"]["score_composed"] == 100 for verdict in kept)
    assert all(verdict["scores"]["score_composed"] < 100 and verdict["num_infractions"] for verdict in failed)
    assert len(list(tree.glob("results/*/*_result.json"))) == 4


def test_an_interrupted_run_continues_and_leaves_nothing_half_done(tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    def killer(done: int, total: int) -> None:
        assert total == 4
        if done == 3:
            raise Killed

    with pytest.raises(Killed):
        write_example_tree(tmp_path / "cut", routes=2, frames=2, progress=killer)
    assert len(list((tmp_path / "cut").glob("data/*/*"))) == 1
    seen: list[int] = []
    write_example_tree(tmp_path / "cut", routes=2, frames=2, progress=lambda done, total: seen.append(done))
    write_example_tree(tmp_path / "whole", routes=2, frames=2)
    assert _content(tmp_path / "cut") == _content(tmp_path / "whole")
    assert seen == [2, 3, 4]


def test_the_tree_of_another_request_is_never_touched(tmp_path: Path) -> None:
    write_example_tree(tmp_path, routes=1, frames=2)
    before = _content(tmp_path)
    with pytest.raises(ExampleDataError, match="choose another folder"):
        write_example_tree(tmp_path, routes=1, frames=2, seed=9)
    assert _content(tmp_path) == before


def test_real_data_is_never_extended(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(ExampleDataError, match="not ours to extend"):
        write_example_tree(tmp_path, routes=1, frames=2)


@pytest.mark.parametrize(
    ("name", "value"), [("routes", 0), ("frames", 1), ("failed_routes", 3), ("image_quality", 101), ("seed", -1)]
)
def test_impossible_numbers_are_named(tmp_path: Path, name: str, value: int) -> None:
    with pytest.raises(ExampleDataError, match=f"{name} is {value}"):
        write_example_tree(tmp_path, **{"routes": 2, "frames": 2, name: value})  # type: ignore[arg-type]


def test_a_store_gets_the_same_data_as_a_folder(tmp_path: Path) -> None:
    summary = write_example_tree_to_store(FolderStore(tmp_path / "store"), "raw/demo", routes=1, frames=2)
    write_example_tree(tmp_path / "folder", routes=1, frames=2)
    expected = {name: data for name, data in _content(tmp_path / "folder").items() if name != "example_data.json"}
    assert _content(tmp_path / "store/raw/demo") == expected
    assert summary.files == len(expected)
    assert summary.target.endswith("/store/raw/demo")
