"""A scene as every source gives it: pictures in order, when they were taken, and what the driver did between them."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import structlog

from lead_trainer.contract.raw_data import RouteVerdict
from lead_trainer.errors import BadData

log = structlog.get_logger(__name__)

ACTION_DIM = 4  # steering [-1, 1], throttle [0, 1], brake [0, 1], gear 0 | 1
SPLITS = ("train", "val")
KEPT = "kept"

# Of files: a picture of MAX_PIXELS is smaller, and a list in JSON takes some twenty times its bytes in memory.
MAX_PICTURE_BYTES, MAX_JSON_BYTES = 64 * 1024 * 1024, 16 * 1024 * 1024
# Of the time between two frames: this many times the median of its scene, and 1,000 s.
MAX_GAP_STEPS, MAX_STEP_US = 10.0, 1_000_000_000
MAX_NAME = 200  # bytes of a scene's name, which names folders; letters of a place

ActionSource = Literal["can", "poses", "recorded"]
Times = npt.NDArray[np.int64]  # microseconds
Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Scene:
    """The pictures of one drive, in the order of time."""

    name: str
    split: str  # train | val
    location: str
    files: tuple[str, ...]  # of the tree, one a frame
    timestamps: Times  # (T,)

    def __post_init__(self) -> None:
        """Raises BadData for a name that is no name of a folder, and for a place that cannot be shown."""
        refuse_name(self.name)
        if len(self.location) > MAX_NAME or not self.location.isprintable():
            raise BadData(
                f"scene {self.name}: location: found {self.location!r:.40}, expected at most {MAX_NAME} printable "
                "letters; correct its tables or its metadata"
            )

    @property
    def route(self) -> str:
        """What the scene is called in a cache and in the processed layout."""
        return f"{self.split}/{self.name}"

    @property
    def fps(self) -> float:
        """Frames a second, over the whole scene."""
        return (len(self.files) - 1) / (1e-6 * float(self.timestamps[-1] - self.timestamps[0]))


@dataclass(frozen=True)
class Actions:
    """What the driver did between neighbouring frames."""

    values: Float32  # (T-1, 4)
    source: ActionSource


class SceneSource(ABC):
    """A raw tree as scenes; pure in (tree, keys). `scenes` are by route."""

    scenes: Mapping[str, Scene]
    verdicts: Sequence[RouteVerdict]  # of every scene, kept or not

    @abstractmethod
    def actions(self, scene: Scene) -> Actions:
        """Returns the actions; raises BadData naming the file that cannot be used."""

    def difficulty(self, scene: Scene) -> float | None:
        """Returns the difficulty that the tree states, None where it follows from the pictures."""
        return None


def sorted_out(found: Sequence[Scene], files: Mapping[str, int]) -> tuple[dict[str, Scene], list[RouteVerdict]]:
    """Returns the usable scenes by route, and a verdict for each; `files` are the sizes of the tree's files by path."""
    kept, verdicts, lacking = {}, [], {}
    for scene in sorted(found, key=lambda scene: scene.route):
        there = sum(path in files for path in scene.files)
        for path in scene.files:
            refuse_large(path, files.get(path, 0), MAX_PICTURE_BYTES)
        reason = KEPT
        if len(scene.files) < 2:
            reason = "one_picture"
        elif not all(map(is_name, scene.files)):
            reason = "bad_picture_name"
        elif there < len(scene.files):
            reason = "pictures_missing" if there else "no_pictures"
        else:
            refuse_unordered(scene)
            reason = "gap_in_time" if has_gap(scene.timestamps) else KEPT
        if there < len(scene.files):
            lacking[scene.name] = next(path for path in scene.files if path not in files)
        verdicts.append(RouteVerdict(scene.route, reason == KEPT, reason, len(scene.files)))
        if reason == KEPT:
            kept[scene.route] = scene
    if lacking:
        name, path = next(iter(lacking.items()))
        log.warning("scenes are left out: pictures of theirs are not in the tree, or their names are none of a file",
                    scenes=len(lacking), scene=name, picture=f"{path!r:.200}")  # fmt: skip
    return kept, verdicts


def is_name(path: str) -> bool:
    """Returns whether a text can be the path of a file in a tree: printable, relative, without a way upwards."""
    parts = path.split("/")
    return path.isprintable() and "\\" not in path and not {"", ".", ".."} & set(parts)


def has_gap(timestamps: Times) -> bool:
    """Returns whether two neighbours of increasing timestamps (T,) are too far apart to be one drive's."""
    steps = np.sort(np.diff(timestamps))
    return bool(steps[-1] > min(MAX_GAP_STEPS * steps[(len(steps) - 1) // 2], MAX_STEP_US))


def refuse_name(name: str) -> None:
    """Raises BadData for a scene's name that is no name of a folder."""
    too_long = len(name.encode("utf-8", "surrogatepass")) > MAX_NAME
    if not name.isprintable() or too_long or name.startswith(".") or not name or "/" in name or "\\" in name:
        raise BadData(
            f"scene {name!r:.40}: expected a name such as scene-0061, of at most {MAX_NAME} printable letters and no "
            "path; correct its tables or its folder"
        )


def refuse_large(path: str, size: int, limit: int) -> None:
    """Raises BadData for a file of more bytes than are read at once."""
    if size > limit:
        raise BadData(f"file {path} has {size} bytes, expected at most {limit}; restore it")


def refuse_unordered(scene: Scene) -> None:
    """Raises BadData where a frame is not later than the one before it, or has its picture."""
    if len(set(scene.files)) < len(scene.files):
        twice, _ = Counter(scene.files).most_common(1)[0]
        raise BadData(f"scene {scene.name}: {twice} is the picture of two frames; fetch the scene again")
    late = np.flatnonzero(np.diff(scene.timestamps) <= 0)
    if len(late):
        at = int(late[0])
        raise BadData(
            f"scene {scene.name}: frame {at + 1} is of {scene.timestamps[at + 1]} us, not later than frame {at} of "
            f"{scene.timestamps[at]} us; expected increasing timestamps; fetch the scene again"
        )


def field_of(row: Any, key: str, kind: type | tuple[type, ...], where: str) -> Any:
    """Returns a member of a JSON object; raises BadData naming `where` it stands unless it is of that kind."""
    if not isinstance(row, dict):
        raise BadData(f"{where}: found a {type(row).__name__}, expected an object; fetch the file again")
    value = row.get(key)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        names = "|".join(each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,)))
        found = "nothing" if key not in row else f"{value!r:.40}"
        raise BadData(f"{where}: {key}: found {found}, expected {names}; fetch the file again")
    return value


def number_of(row: Any, key: str, where: str) -> float:
    """Returns a finite number of a JSON object; raises BadData like `field_of`."""
    value = field_of(row, key, (int, float), where)
    if not abs(value) < 1e300:  # NaN, infinity, and whole numbers that no float holds
        raise BadData(f"{where}: {key}: found {value!r:.40}, expected a finite number; fetch the file again")
    return float(value)
