"""The page of the client: every example that needs no cluster is executed, by doctest."""

import doctest
import os
from pathlib import Path

import pytest

import lead_client.objects.manifests
from lead_testing import PROJECT_ROOT
from lead_trainer.example_worlds.lead.tree import write_example_tree

PAGE = PROJECT_ROOT / "operator/lead_client/README.md"


def test_every_example_of_the_page_prints_what_stands_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", str(os.cpu_count() or 1))
    monkeypatch.delenv("LEAD_STORE_URL", raising=False)
    write_example_tree(Path("data"), routes=1, frames=24, seed=1)
    done = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert done.attempted > 10 and done.failed == 0
    assert PAGE.read_text().count("```pycon") == 2


def test_the_ten_lines_read_the_manifest_of_the_readme() -> None:
    found = lead_client.objects.manifests.read_manifests(PROJECT_ROOT / "crds/examples/lead-demo.yaml")
    assert [each.kind for each in found] == ["DatasetCache", "TrainingRun"]
