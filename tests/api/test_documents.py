"""What the pages and examples tell people to apply is taken by the API server as it stands."""

import re
from pathlib import Path

import pytest

from lead_testing import PROJECT_ROOT
from lead_testing.local_cluster.control_plane import ControlPlane

CRDS = PROJECT_ROOT / "crds"
EXAMPLES = sorted((CRDS / "examples").iterdir())
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in sorted((CRDS / "docs").glob("*.md"))
    for number, block in enumerate(re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL))
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_taken(control_plane: ControlPlane, example: Path) -> None:
    said = control_plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", str(example))
    assert len(said.splitlines()) == example.read_text().count("\nkind:")


@pytest.mark.parametrize("block", BLOCKS)
def test_every_manifest_of_a_page_is_taken(control_plane: ControlPlane, block: str) -> None:
    said = control_plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=block)
    assert "created (server dry run)" in said
