"""`helm test` on a real cluster: a working installation passes and is left as it was; missing data are named."""

from pathlib import Path

from lead_testing import PROJECT_ROOT
from lead_testing.installed import Installed, upload_tree
from lead_trainer.example_worlds.lead.tree import write_example_tree

CHART = str(PROJECT_ROOT / "charts/lead")


def helm_test(release: Installed, prefix: str) -> tuple[int, str]:
    """Returns the exit status of `helm test` over raw data, and what the test's pod has logged."""
    upgraded = release.run("helm", "upgrade", "lead", CHART, "--reuse-values", "--set", f"smokeTest.prefix={prefix}")
    assert upgraded.returncode == 0, upgraded.stderr
    done = release.run("helm", "test", "lead", "--timeout", "600s")
    return done.returncode, release.run("kubectl", "logs", "pod/lead-smoke-test").stdout + done.stderr


def test_a_working_installation_passes_and_nothing_of_the_test_stays(installed: Installed, tmp_path: Path) -> None:
    write_example_tree(tmp_path / "tree", routes=1, frames=10, seed=2, failed_routes=0)
    with installed.store() as store:
        upload_tree(store, tmp_path / "tree", "datasets/smoke")
    status, log = helm_test(installed, "datasets/smoke")
    assert status == 0, log + installed.describe_everything()
    assert "TrainingRun smoke-test-" in log and "the smoke run has succeeded" in log
    left = [each["metadata"]["name"] for kind in ("trainingruns", "roles") for each in installed.items(kind)]
    assert not [name for name in left if "smoke" in name]


def test_data_that_are_missing_are_named_by_the_test(installed: Installed) -> None:
    status, log = helm_test(installed, "datasets/nothing-here")
    assert status != 0
    assert "datasets/nothing-here" in log
