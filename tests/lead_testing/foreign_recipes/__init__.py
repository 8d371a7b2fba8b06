"""Recipes unlike those of the project, each one file, as somebody else would write them; the contract must fit them.

`install(folder)` offers them as an installed package does.
"""

from pathlib import Path

NAMES = ("adversarial", "detection", "stepwise")


def install(folder: Path) -> Path:
    """Writes the metadata of a package that offers them; `folder` then belongs on the module search path."""
    info = folder / "lead_foreign-1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lead-foreign\nVersion: 1\n")
    lines = "".join(f"{name} = lead_testing.foreign_recipes.{name}:RECIPE\n" for name in NAMES)
    (info / "entry_points.txt").write_text(f"[lead.recipes]\n{lines}")
    return folder
