"""The `config.json` that LEAD's closed-loop evaluation reads beside exported weights, and settings that it ignores.

LEAD reads every key of the file that it has itself, but what its code computes from the data set it does not set, and
does not report that. Of `carla_root` it needs one thing, which cameras to mount, from a list of folder names, and any
other path ends its evaluation; so the exported file names a folder of that list.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter

from lead_trainer.recipes.lead.compat import Compat
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.data_sources import WAYMO, source_defaults
from lead_trainer.recipes.lead.rig import RECORDED_FOR, SIX_CAMERAS, THREE_CAMERAS, Camera, rig_keys, rig_of

NAMES = {"carla_leaderboard2": THREE_CAMERAS, "carla_leaderboad2_v10": SIX_CAMERAS}  # one of LEAD's for each rig

# What LEAD's evaluation reads and its TrainingConfig has as a plain property: no file, no command line sets it.
COMPUTED_BY_LEAD = (
    "min_x_meter", "max_x_meter", "min_y_meter", "max_y_meter", "training_used_lidar_steps", "radar_detection",
    "tp_pop_distance", "use_tp", "use_previous_tp", "use_next_tp", "target_point_scale", "discrete_command_dim",
    "max_speed", "use_acceleration", "max_acceleration", "predict_target_speed", "target_speed_classes",
    "predict_spatial_path", "num_way_points_prediction", "waypoints_spacing",
)  # fmt: skip
SIZES = ("image_height", "image_width")


def for_leads_evaluation(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Returns a run's `config.json` as LEAD can read it, and a sentence for each thing a person should know."""
    root = str(document.get("carla_root", ""))
    known, notes = _known_root(document, root), []
    if known is None:
        notes.append(
            "config.json: LEAD's evaluation has no rig of these cameras and pictures (cameras, used_cameras, "
            f"image_height, image_width), and its list of folders does not hold carla_root {root!r}; declare the rig "
            "in LEAD's code before these weights are driven"
        )
    elif known != root:
        notes.append(f"config.json: carla_root is {known}, by which LEAD knows these cameras; trained on {root}")
    past = document.get("use_past_positions") or document.get("use_past_speeds")
    switches = Compat.model_validate(document.get("compat") or {}).mended_forward
    mended = [name for name in switches if past or name != "unread_past"]
    if mended:
        names = ", ".join(f"compat.{name}" for name in mended)
        notes.append(f"{names}: false in training, so LEAD's evaluation computes other outputs with these weights")
    notes += [
        f"config.json: {key} is {document[key]} in training, but LEAD's evaluation takes {value} from its own code, "
        "whatever the file contains; change it there before these weights are driven"
        for key, value in _computed_by_lead(document).items()
        if document.get(key, value) != value
    ]
    if not document.get("use_planning_decoder"):
        notes.append(
            "use_planning_decoder: false in training, so these weights have no planner: LEAD's evaluation loads them "
            "and ends at the first frame; export the posttrain stage to drive"
        )
    path = root if known is None else known
    shown = {key: value for key, value in document.items() if key not in _unanswered(document)}
    return {**shown, "carla_root": path, "carla_data": f"{path}/data"}, notes


def _unanswered(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the keys that LEAD's own files lack: its code asks itself for each key of a file, and ends at these."""
    ends = document.get(WAYMO.use_key) and document.get("use_planning_decoder")
    return ("skip_last",) if ends else ()


def _known_root(document: Mapping[str, Any], root: str) -> str | None:
    """Returns the run's root where LEAD knows it with the run's cameras, else one that it knows; None if none fits."""
    real = [part for part, key in RECORDED_FOR.items() if document.get(key)]
    if real:
        part, sizes = real[-1], source_defaults(document)
        if any(document.get(key) != sizes[key] for key in SIZES):
            return None
        # A part of RIGS anywhere in the path would mount CARLA's cameras.
        return root if part in root and not rig_of(root) else f"data/{part}"
    fitting = [name for name, rig in NAMES.items() if _has(document, rig)]
    if not fitting:
        return None
    return root if rig_of(root) == NAMES[fitting[0]] else f"data/{fitting[0]}"


def _computed_by_lead(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values LEAD's code has for the run's data sets, as they stand in a `config.json`."""
    config = LeadConfig.model_construct(**source_defaults(document))
    return config.model_dump(mode="json", include=set(COMPUTED_BY_LEAD))


def _has(document: Mapping[str, Any], rig: Sequence[Camera]) -> bool:
    declared = TypeAdapter(tuple[Camera, ...]).validate_python(document.get("cameras") or (), strict=False)
    wanted = rig_keys(rig)
    sizes = all(document.get(key) == wanted[key] for key in SIZES)
    same_number = len(document.get("used_cameras", ())) == len(rig)
    return sizes and same_number and (not declared or declared == tuple(rig))
