"""What a person meets first: bare `make`, the README's commands, and the folder that they make."""

import re
import subprocess
import sys

import pytest

from lead_operator.names import Label
from lead_testing import PROJECT_ROOT
from lead_trainer.recipes.lead.config_values import load_config

MAKEFILE = (PROJECT_ROOT / "Makefile").read_text()
README = (PROJECT_ROOT / "README.md").read_text()
TRAINER = (PROJECT_ROOT / "trainer/README.md").read_text()


def ask(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False, timeout=60)


def test_bare_make_prints_every_target_and_does_nothing_else() -> None:
    found = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert found
    done = ask("make", "--no-print-directory")
    assert done.returncode == 0 and done.stderr == ""
    assert all(line.startswith("  make ") for line in done.stdout.splitlines())
    printed = set(re.findall(r"[a-z]+(?:-[a-z]+)*", done.stdout))
    assert set(found[1].split()) - {"help"} <= printed


@pytest.mark.parametrize("module", sorted(set(re.findall(r"\$\(RUN\) (lead_testing\.\w+)", MAKEFILE))))
def test_what_make_runs_before_anything_is_installed_needs_the_standard_library_alone(module: str) -> None:
    start = f"import sys; sys.path.insert(0, 'tests'); import {module}"
    if (PROJECT_ROOT / "tests" / module.replace(".", "/") / "__main__.py").exists():
        start += ".__main__"
    done = ask(sys.executable, "-I", "-S", "-c", start)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("page", [README, TRAINER], ids=["README.md", "trainer/README.md"])
def test_the_folder_of_the_pages_environment_is_ignored_by_git(page: str) -> None:
    found = re.search(r"-m venv (\S+)", page)
    assert found and ask("git", "check-ignore", "-q", f"{found[1]}/bin/python").returncode == 0


def test_a_line_that_trains_as_leads_scripts_names_its_batch_size() -> None:
    lines = re.findall(r"`(lead train [^`]*\bcarla_root=[^`]*)`", TRAINER)
    full = [line for line in lines if "preset=" not in line]
    assert len(full) >= 2 and all("batch_size=64" in line.split() for line in full)
    assert load_config({}, "").batch_size == 64 and load_config({}, "demo").batch_size == 2
    assert "64 of all processes together" in TRAINER and "preset (`demo`: 2)" in TRAINER


def test_the_readme_names_where_a_run_is_watched() -> None:
    assert f"kubectl logs -l {Label.RUN}=" in README and "kubectl describe trainingrun" in README
    assert "TensorBoard" in README and "tensorboard.enabled=true" in README
