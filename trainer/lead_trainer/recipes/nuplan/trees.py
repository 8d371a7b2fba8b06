"""Where the raw data of recipe `nuplan` lie on one machine."""

from pathlib import Path

from lead_trainer.errors import BadConfig
from lead_trainer.recipes.nuplan.data_keys import ReadsSamples

_LOGS = ("nuplan-v1.1/splits/*/*.db", "splits/*/*.db", "data/cache/*/*.db", "*/data/cache/*/*.db", "*/splits/*/*.db")


def source_root(config: ReadsSamples) -> str:
    """Returns the folder of the tree; raises BadConfig where it is not set."""
    if not config.data_root:
        raise BadConfig(
            "data_root: is not set; name the folder with nuPlan's logs, blobs and maps, for example "
            "data_root=data/nuplan_mini"
        )
    return config.data_root


def layout_fault(config: ReadsSamples, root: Path) -> str:
    """Returns what to name instead of a folder that lies beside the tree, empty where it may be the tree's root."""
    if _is_root(root):
        return ""
    near = [folder for folder in (*sorted(root.iterdir()), root.parent) if folder.is_dir() and _is_root(folder)]
    asked = f"; did you mean data_root={near[0]}?" if near else ""
    return f"{root} has no nuplan-v1.1/splits/<split>/*.db and no data/cache/<split>/*.db{asked}"


def _is_root(folder: Path) -> bool:
    return any(next(folder.glob(pattern), None) is not None for pattern in _LOGS)
