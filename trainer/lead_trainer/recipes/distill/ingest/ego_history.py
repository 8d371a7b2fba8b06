"""Where the car was before t0, out of its recorded motion: sixteen poses at 10 Hz in the ego's frame at t0."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.spatial.transform import Rotation, Slerp

from lead_trainer.errors import BadData
from lead_trainer.recipes.distill.ingest.frame_files import Clip
from lead_trainer.recipes.distill.ingest.label_files import DT_S, PAST, History
from lead_trainer.recipes.distill.ingest.npz import Array, read_npz

_SCHEMA = {"timestamps_us": ("i8", (None,)), "xyz": ("f8", (None, 3)), "quaternions": ("f8", (None, 4))}
MOTION_FOLDER = "egomotion/"
STEP_US = round(DT_S * 1e6)


@dataclass(frozen=True)
class Motion:
    """A clip's poses in a frame of its own: when (M,) int64 µs, where (M, 3) m, and x, y, z, w quaternions (M, 4)."""

    timestamps_us: npt.NDArray[np.int64]
    xyz: npt.NDArray[np.float64]
    quaternions: npt.NDArray[np.float64]

    def arrays(self) -> dict[str, Array]:
        """Returns what the file holds."""
        return {"timestamps_us": self.timestamps_us, "xyz": self.xyz, "quaternions": self.quaternions}


def motion_path(clip_id: str) -> str:
    """Returns where the motion of a clip lies in the raw tree."""
    return f"{MOTION_FOLDER}{clip_id}.npz"


def read_motion(data: bytes, path: str) -> Motion:
    """Returns the motion in a file; raises BadData where its times do not rise."""
    motion = Motion(**read_npz(data, path, _SCHEMA))
    if len(motion.timestamps_us) < 2 or (np.diff(motion.timestamps_us) <= 0).any():
        raise BadData(f"file {path}: timestamps_us must rise over at least two poses; write it again")
    return motion


def history_times_us(clip: Clip) -> npt.NDArray[np.int64]:
    """Returns when a clip's sixteen past poses are, the last one at t0."""
    return clip.t0_us + STEP_US * np.arange(1 - PAST, 1, dtype=np.int64)


def ego_history(motion: Motion, clip: Clip) -> History:
    """Returns the poses from t0 - 1.5 s to t0, interpolated (linearly, and along great circles).

    Raises BadData where the motion does not reach as far as that.
    """
    times = history_times_us(clip)
    first, last = int(motion.timestamps_us[0]), int(motion.timestamps_us[-1])
    if times[0] < first or times[-1] > last:
        raise BadData(
            f"clip {clip.clip_id} at {clip.t0_us} µs: its motion lasts from {first} to {last} µs, but the history "
            f"needs {times[0]} to {times[-1]} µs; choose another t0"
        )
    xyz = np.stack([np.interp(times, motion.timestamps_us, axis) for axis in motion.xyz.T], -1)
    turned = Slerp(motion.timestamps_us, Rotation.from_quat(motion.quaternions))(times)
    to_ego = turned[-1].inv()
    return History(to_ego.apply(xyz - xyz[-1]).astype(np.float32), (to_ego * turned).as_matrix().astype(np.float32))
