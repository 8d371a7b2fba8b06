"""Writes an example dataset: a small LEAD tree of a simple world, into a folder or an object store.

Called by the `lead example-data` command and by tests. Never replaces data that another request made.

    <root>/example_data.json                      the request, so that a second run continues the same tree
    <root>/data/<Scenario>/<route>/...            one folder a route, renamed into place when it is complete
    <root>/results/<Scenario>/<town>_<n>_result.json
"""

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from lead_protocol.store.object_store import ObjectStore
from lead_trainer.example_worlds.lead.route_files import RouteRenderer, RouteRequest, json_bytes
from lead_trainer.example_worlds.lead.scenarios import SCENARIOS
from lead_trainer.example_worlds.lead.verdicts import leaderboard_checkpoint

REQUEST_FILE = "example_data.json"
GENERATOR_VERSION = 1

Progress = Callable[[int, int], None]


class ExampleDataError(Exception):
    """A request that cannot be met; the message names what to change."""


@dataclass(frozen=True)
class ExampleTreeRequest:
    """What an example tree is made from; the same request always gives the same tree."""

    routes: int
    frames: int
    seed: int
    failed_routes: int
    image_quality: int

    def __post_init__(self) -> None:
        for name, low, high in (
            ("routes", 1, 10_000),
            ("frames", 2, 9_999),
            ("seed", 0, 2**32 - 1),
            ("failed_routes", 0, self.routes),
            ("image_quality", 1, 100),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ExampleDataError(f"example data: {name} is {value}, but must be between {low} and {high}")

    def route(self, index: int) -> RouteRequest:
        """Returns the request for one route; the last `failed_routes` routes fail."""
        failed = index >= self.routes - self.failed_routes
        return RouteRequest(self.seed, index, self.frames, failed, self.image_quality)


@dataclass(frozen=True)
class ExampleTreeSummary:
    """What was written, counting what an earlier run of the same request had finished."""

    target: str
    routes: int
    failed_routes: int
    frames: int
    files: int
    size_bytes: int
    scenarios: tuple[str, ...]


def write_example_tree(
    root: Path,
    *,
    routes: int,
    frames: int,
    seed: int = 0,
    failed_routes: int = 0,
    image_quality: int = 90,
    progress: Progress | None = None,
) -> ExampleTreeSummary:
    """Writes a tree whose `carla_root` is `root`; finished routes of the same request are kept.

    `progress` is called with (frames done, frames in all). Raises ExampleDataError for impossible numbers, and where
    `root` holds the tree of another request.
    """
    request = ExampleTreeRequest(routes, frames, seed, failed_routes, image_quality)
    _claim(root, request)
    for index in range(routes):
        _write_route(root, request.route(index), _shifted(progress, index, request))
    return _summary(str(root), request, [path for path in root.rglob("*") if path.is_file()])


def write_example_tree_to_store(
    store: ObjectStore,
    prefix: str,
    *,
    routes: int,
    frames: int,
    seed: int = 0,
    failed_routes: int = 0,
    image_quality: int = 90,
    progress: Progress | None = None,
) -> ExampleTreeSummary:
    """Like `write_example_tree`, but puts the files below `prefix`, one route at a time, its `results.json` last."""
    request = ExampleTreeRequest(routes, frames, seed, failed_routes, image_quality)
    base = prefix.rstrip("/") + "/" if prefix else ""
    files, size = 0, 0
    for index in range(routes):
        with tempfile.TemporaryDirectory(prefix="lead-example-data-") as folder:
            _write_route(Path(folder), request.route(index), _shifted(progress, index, request))
            paths = sorted(path for path in Path(folder).rglob("*") if path.is_file())
            for path in sorted(paths, key=lambda path: path.name == "results.json"):
                data = path.read_bytes()
                store.put(base + path.relative_to(folder).as_posix(), data)
                files, size = files + 1, size + len(data)
    target = f"{store.url.rstrip('/')}/{base}".rstrip("/")
    return ExampleTreeSummary(target, routes, failed_routes, routes * frames, files, size, _names(routes))


def _claim(root: Path, request: ExampleTreeRequest) -> None:
    """Writes the request beside the data, or checks that it is the one already there."""
    path = root / REQUEST_FILE
    document = {"generator_version": GENERATOR_VERSION, **asdict(request)}
    if path.exists():
        found = json.loads(path.read_text())
        if found != document:
            raise ExampleDataError(
                f"example data: {root} already holds a tree made from {found}, but {document} was asked for; "
                "choose another folder or delete this one"
            )
    elif (root / "data").exists():
        raise ExampleDataError(
            f"example data: {root} already holds a data folder but no {REQUEST_FILE}, so it is not ours to extend; "
            "choose another folder"
        )
    root.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".json.part")
    part.write_bytes(json_bytes(document))
    part.rename(path)


def _write_route(root: Path, request: RouteRequest, progress: Progress) -> None:
    renderer: RouteRenderer | None = None
    scenario = SCENARIOS[request.index % len(SCENARIOS)]
    folder = root / "data" / scenario.name
    finished = sorted(folder.glob(f"999_Rep-1_{scenario.town}_{request.index}_route0_*")) if folder.is_dir() else []
    if finished and not finished[0].name.endswith(".part"):
        progress(request.frames, request.frames)
        return
    renderer = RouteRenderer(request)
    part = root / ".unfinished" / f"{renderer.name}.part"
    shutil.rmtree(part, ignore_errors=True)
    for frame in range(request.frames):
        for name, data in renderer.files(frame):
            path = part / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        progress(frame + 1, request.frames)
    result = renderer.verdict()
    (part / "results.json").write_bytes(json_bytes(result))
    report = root / "results" / scenario.name / f"{scenario.town}_{request.index}_result.json"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_bytes(json_bytes(leaderboard_checkpoint(result)))
    folder.mkdir(parents=True, exist_ok=True)
    part.rename(folder / renderer.name)
    if not any(part.parent.iterdir()):
        part.parent.rmdir()


def _shifted(progress: Progress | None, index: int, request: ExampleTreeRequest) -> Progress:
    """Turns the progress of one route into that of the tree."""

    def report(done: int, of: int) -> None:
        if progress is not None:
            progress(index * of + done, request.routes * of)

    return report


def _names(routes: int) -> tuple[str, ...]:
    return tuple(sorted({SCENARIOS[index % len(SCENARIOS)].name for index in range(routes)}))


def _summary(target: str, request: ExampleTreeRequest, paths: list[Path]) -> ExampleTreeSummary:
    size = sum(path.stat().st_size for path in paths)
    frames = request.routes * request.frames
    return ExampleTreeSummary(
        target, request.routes, request.failed_routes, frames, len(paths), size, _names(request.routes)
    )
