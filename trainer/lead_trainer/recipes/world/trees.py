"""Where the raw data of recipe `world` lie on one machine."""

from pathlib import Path

from lead_trainer.errors import BadConfig
from lead_trainer.recipes.world.data_keys import ReadsWindows


def source_root(config: ReadsWindows) -> str:
    """Returns the folder of the tree; raises BadConfig where it is not set."""
    if not config.data_root:
        raise BadConfig(
            "data_root: is not set; name the folder with nuScenes' tables, with LEAD's routes, or what prepare_dataset "
            "wrote, for example data_root=data/processed/nuscenes"
        )
    return config.data_root


def layout_fault(config: ReadsWindows, root: Path) -> str:
    """Returns what to name instead of a folder that lies beside the tree, empty where it may be the tree's root."""
    if _is_root(root):
        return ""
    near = [folder for folder in (*sorted(root.iterdir()), root.parent) if folder.is_dir() and _is_root(folder)]
    asked = f"; did you mean data_root={near[0]}?" if near else ""
    return f"{root} has no folder v1.0-*, data, train or val{asked}"


def _is_root(folder: Path) -> bool:
    return any(folder.glob("v1.0-*/scene.json")) or any((folder / name).is_dir() for name in ("data", "train", "val"))
