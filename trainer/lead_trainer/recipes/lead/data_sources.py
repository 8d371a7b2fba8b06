"""CARLA, NavSim and Waymo-E2E: which of them a stage trains on, and the defaults LEAD ties to that choice.

LEAD computes these values from `target_dataset`; here they are defaults that an explicit key overrides. Read by
`config` before its keys are validated.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lead_trainer.engine.step.schedule import whole_epochs_of_cycles


@dataclass(frozen=True)
class DataSource:
    """One kind of data set."""

    name: str
    number: int  # LEAD's `source_dataset`
    use_key: str
    root_key: str
    count_key: str
    prefix: str  # of its labels' and losses' keys


CARLA = DataSource("carla", 1, "use_carla_data", "carla_root", "carla_num_samples", "")
NAVSIM = DataSource("navsim", 2, "use_navsim_data", "navsim_data_root", "navsim_num_samples", "navsim_")
WAYMO = DataSource(
    "waymo_e2e",
    3,
    "use_waymo_e2e_data",
    "waymo_e2e_training_data_root",
    "waymo_e2e_num_training_samples",
    "waymo_e2e_2025_",
)
NAVSIM_BEV_CLASSES = 7
SOURCES = (CARLA, NAVSIM, WAYMO)  # in the order LEAD puts them in a batch

# Everything but CARLA alone: labels, inputs and augmentation that real data share.
_SIM2REAL: dict[str, Any] = {
    "min_x_meter": -32,
    "max_x_meter": 32,
    "min_y_meter": -32,
    "max_y_meter": 32,
    "use_depth": False,
    "radar_detection": False,
    "use_radar_detection": False,
    "predict_target_speed": False,
    "predict_spatial_path": False,
    "use_tp": False,
    "use_previous_tp": False,
    "use_next_tp": False,
    "use_color_aug_prob": 0.1,
    "use_sensor_perburtation_prob": 0.8,
    "discrete_command_dim": 4,
    "waypoints_spacing": 10,
}
_NAVSIM = _SIM2REAL | {
    "used_cameras": (True,) * 4,
    "image_height": 270,
    "image_width": 1920,
    "num_way_points_prediction": 8,
    "max_speed": 15.0,
    "use_acceleration": True,
    "max_acceleration": 4.0,
    "epochs": 61,
}
_WAYMO = _SIM2REAL | {
    "image_height": 360,
    "image_width": 972,
    "min_x_meter": 0,
    "max_x_meter": 64,
    "num_way_points_prediction": 10,
    "max_speed": 33.33,
    "use_discrete_command": False,
    "use_cosine_annealing_with_restarts": False,
    "epochs": 20,
}
# Of Waymo-E2E alone: samples of other data sets, which share its batches in a mix, have no past.
_PAST = {"use_past_positions": True, "use_past_speeds": True, "num_past_samples_used": 6}

KEPT_EPOCHS = "epoch_checkpoints_keep"
_FIRST_KEPT_CYCLE = 2  # counted from 0: the models of the first two short cycles are of no use
_EPOCHS = 31  # of CARLA, by default

HORIZON = ("num_way_points_prediction", "waypoints_spacing", "data_save_freq")  # how far waypoints reach


def used_sources(values: Mapping[str, Any]) -> tuple[DataSource, ...]:
    """Returns the sources that keys switch on, CARLA being on unless it is switched off."""
    return tuple(source for source in SOURCES if values.get(source.use_key, source is CARLA) is True)


def source_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the defaults that follow from the sources; empty for CARLA alone (leaderboard mode)."""
    used = used_sources(values)
    if used in ((CARLA,), ()):
        return {}
    defaults = {**(_WAYMO if WAYMO in used else _NAVSIM), **(_PAST if used == (WAYMO,) else {})}
    return {**defaults, KEPT_EPOCHS: kept_epochs({**defaults, **values})}


def kept_epochs(values: Mapping[str, Any]) -> tuple[int, ...]:
    """Returns the epochs at whose end the model of a low learning rate stays: with real data, the ends of LR cycles.

    LEAD's list holds the ends of cycles of 4, 8, 16, … epochs; where cycles are stretched to the end of the run, theirs
    are others, and a single cosine has none. Empty too where `values`, which may be unvalidated, hold no epochs.
    """
    compat = values.get("compat")
    if isinstance(compat, Mapping) and compat.get("fixed_restart_lengths"):
        return tuple(2**cycles - 1 for cycles in range(_FIRST_KEPT_CYCLE + 1, 10))
    epochs = values.get("epochs", _EPOCHS)
    restarts = values.get("use_cosine_annealing_with_restarts", True)
    if type(epochs) is not int or epochs < 1 or restarts is not True:
        return ()
    return whole_epochs_of_cycles(epochs)[_FIRST_KEPT_CYCLE:]


def skip_defaults(values: Mapping[str, Any]) -> dict[str, int]:
    """Returns the frames to leave out of a route for its waypoints: as many as there are, and as far as they reach.

    Empty where `values`, which may be unvalidated, lack one of HORIZON or hold no number for it.
    """
    if not all(type(values.get(key)) is int and values[key] > 0 for key in HORIZON):
        return {}
    points, spacing, save_freq = (values[key] for key in HORIZON)
    used = used_sources(values)
    skips = {"skip_last_posttrain": -(-points * spacing // save_freq)}
    if CARLA in used:  # of real data alone no routes are cut
        skips["skip_first_posttrain"] = points
    if len(used) > 1:
        skips["skip_first_pretrain"] = points
    return skips
