"""Which sweeps of a log are samples, and why the others are not: all that a scan needs of the log's database.

One pod of a build reads a log for all of them, so what it found goes through the store as JSON.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from lead_trainer.contract.raw_data import RouteVerdict
from lead_trainer.errors import BadData
from lead_trainer.recipes.nuplan.ingest.log_tables import Log
from lead_trainer.recipes.nuplan.ingest.nuplan_tree import NuplanTree
from lead_trainer.recipes.nuplan.prepare_keys import NuplanKeys
from lead_trainer.recipes.nuplan.targets.bundles import shots_of

KEPT, LEFT_OUT, NO_CLOUD, NO_CAMERA, NO_PICTURE, NO_NEAR = (
    "kept", "scene_at_the_end_of_its_log", "cloud_missing", "camera_missing", "picture_missing",
    "picture_too_far_in_time",
)  # fmt: skip


@dataclass(frozen=True)
class ScannedLog:
    """What a scan takes of a log."""

    city: str
    verdicts: tuple[RouteVerdict, ...]
    clouds: Mapping[str, tuple[tuple[int, int], ...]]  # by route: used sweeps, with the sizes of their clouds in bytes

    def to_json(self) -> bytes:
        """Returns it as other pods read it."""
        verdicts = [[each.route, each.kept, each.reason, each.frames] for each in self.verdicts]
        return json.dumps({"city": self.city, "verdicts": verdicts, "clouds": dict(self.clouds)}).encode()

    @classmethod
    def parse(cls, data: bytes) -> "ScannedLog":
        """Reads what `to_json` wrote; raises BadData for anything else."""
        try:
            found = json.loads(data)
            return cls(
                str(found["city"]),
                tuple(RouteVerdict(str(a), bool(b), str(c), int(d)) for a, b, c, d in found["verdicts"]),
                {str(route): tuple((int(a), int(b)) for a, b in each) for route, each in found["clouds"].items()},
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise BadData(
                f"what another pod of this build read of a log is damaged ({error!r}); delete the objects of this "
                "unfinished cache and build again"
            ) from error


def scan_log(tree: NuplanTree, log: Log, keys: NuplanKeys) -> ScannedLog:
    """Returns how many sweeps of each scene are used, and why the others are not; and the used ones by route."""
    verdicts, clouds = [], {}
    for number, scene in enumerate(log.scenes):
        route = f"{log.name}/{scene.name}"
        if route in clouds:
            raise BadData(f"{log.path}: table scene: name {scene.name!r} is there twice; fetch the file again")
        sweeps = [int(sweep) for sweep in log.sweeps_of(number)]
        reasons = {sweep: _reason(tree, log, sweep, keys) for sweep in sweeps}
        if keys.scenes == "valid" and not scene.valid:
            reasons = dict.fromkeys(sweeps, LEFT_OUT)
        used = [sweep for sweep in sweeps if reasons[sweep] == KEPT]
        clouds[route] = tuple((sweep, tree.size(tree.blob(log.clouds[sweep]) or "")) for sweep in used)
        for reason in sorted(set(reasons.values())):
            count = sum(found == reason for found in reasons.values())
            verdicts.append(RouteVerdict(route, reason == KEPT, reason, count))
    return ScannedLog(log.city, tuple(verdicts), clouds)


def _reason(tree: NuplanTree, log: Log, sweep: int, keys: NuplanKeys) -> str:
    """Returns why a sweep is no sample, `kept` where it is one."""
    if tree.blob(log.clouds[sweep]) is None:
        return NO_CLOUD
    shots = shots_of(tree, log, sweep, keys)
    if not isinstance(shots, str):
        return KEPT
    if "has no camera" in shots:
        return NO_CAMERA
    return NO_PICTURE if shots.endswith("is missing") else NO_NEAR
