"""The package on the page of recipes is a recipe like ours, with no change here; the engine knows none by name."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import torch

from lead_protocol.exit_codes import ExitCode
from lead_protocol.manifests import CheckpointManifest

TRAINER = Path(__file__).parents[3] / "trainer/lead_trainer"

PAGE = TRAINER / "recipes/README.md"


def printed(language: str) -> dict[str, str]:
    """Returns the page's blocks of a language by the file name in their first line."""
    blocks = re.findall(rf"```{language}\n# (\S+)\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    return dict(blocks)


def install(site: Path) -> Path:
    """Lays the page's package out as pip does."""
    for name, text in printed("python").items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    info = site / "line_recipe-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: line-recipe\nVersion: 1.0\n")
    ((group, offered),) = tomllib.loads(printed("toml")["pyproject.toml"])["project"]["entry-points"].items()
    lines = "".join(f"{name} = {place}\n" for name, place in offered.items())
    (info / "entry_points.txt").write_text(f"[{group}]\n{lines}")
    return site


def lead(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "lead_trainer", *words], env=environ, capture_output=True, text=True, timeout=300
    )


def test_an_installed_package_is_a_recipe_like_ours(tmp_path: Path) -> None:
    site, logdir = install(tmp_path / "site"), tmp_path / "out"
    smallest = printed("python")["line_recipe/__init__.py"]
    assert len([line for line in smallest.splitlines() if line.strip()]) <= 60
    ended = lead(site, "train", "recipe=line", f"logdir={logdir}", "epochs=3", "slope=2.0")
    assert ended.returncode == 0, ended.stderr
    shown = {path.name for path in logdir.iterdir()}
    assert {
        "config.json",
        "model_0002.pth",
        "ema_0002.pth",
        "optimizer_0002.pth",
        "gradient_steps_skipped_0002.txt",
    } <= shown
    keys = sorted((logdir / ".lead").rglob("manifest/*.json"))
    newest = CheckpointManifest.model_validate_json(keys[-1].read_bytes())
    assert (newest.recipe, newest.step, newest.epoch) == ("line", 12, 3)
    unknown = lead(site, "train", "recipe=lime", f"logdir={logdir}")
    assert unknown.returncode != 0 and "did you mean line?" in unknown.stderr
    assert "Traceback" not in ended.stderr + unknown.stderr


def test_the_example_with_more_parts_validates_and_names_its_files(tmp_path: Path) -> None:
    site, logdir = install(tmp_path / "site"), tmp_path / "out"
    ended = lead(site, "train", "recipe=line-and-more", f"logdir={logdir}", "epochs=3")
    assert ended.returncode == 0, ended.stderr
    assert (logdir / "line_000012.pth").is_file() and (logdir / "optimizer_0002.pth").is_file()
    keys = sorted((logdir / ".lead").rglob("manifest/*.json"))
    metrics = CheckpointManifest.model_validate_json(keys[-1].read_bytes()).metrics
    assert metrics["val/correlation"] > 0.99 and metrics["val/loss"] < 0.4
    measured = lead(site, "evaluate", str(logdir / "line_000012.pth"), "recipe=line-and-more")
    assert measured.returncode == 0 and "correlation" in measured.stdout, measured.stderr


def test_a_package_that_reads_files_has_its_cache_built_and_trains(tmp_path: Path) -> None:
    site, root, logdir = install(tmp_path / "site"), tmp_path / "points", tmp_path / "out"
    for number in range(24):
        file = root / f"route{number % 3}/{number}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{number / 12 - 1} {2 - number / 6}")
    words = ["recipe=line-of-files", f"data_root={root}", f"logdir={logdir}", "epochs=9"]
    ended = lead(site, "train", *words, "scale=0.5")
    assert ended.returncode == 0, ended.stderr
    assert torch.load(logdir / "model_0008.pth", weights_only=True)["weight"].item() < 0  # half of a slope of -2
    assert len(list((root / "cache/caches").iterdir())) == 1
    (root / "route1/1.txt").write_text("nothing")
    spoiled = lead(site, "train", *words, "resume=never")
    assert spoiled.returncode == ExitCode.BAD_DATA and "route1/1.txt does not hold x and y" in spoiled.stderr


def test_the_pages_manifest_is_one_the_operator_takes(tmp_path: Path) -> None:
    (manifest,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    (tmp_path / "line.yaml").write_text(manifest)
    rendered = lead(tmp_path, "render", str(tmp_path / "line.yaml"))
    assert rendered.returncode == 0, rendered.stderr
    assert "line-train-s0-a1-1" in rendered.stdout


def test_the_engine_imports_no_recipe() -> None:
    folders = ("contract", "engine", "report", "data", "blocks")
    shared = [path for name in folders for path in (TRAINER / name).rglob("*.py")]
    imported = {
        (path.name, node.module)
        for path in shared
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lead_trainer.recipes")
    }
    assert not imported
