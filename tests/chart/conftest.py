"""Renders the chart with the real helm, which is found on PATH or built once, and installs it on a real API server."""

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lead_testing import PROJECT_ROOT
from lead_testing.local_cluster.control_plane import ControlPlane
from lead_testing.local_cluster.errors import CannotRunHere

CHART = PROJECT_ROOT / "charts/lead"
VALUES = Path(__file__).parent / "values"
KUBERNETES = "1.34.4"  # without a cluster helm does not know its version

Objects = list[dict[str, Any]]
Helm = Callable[..., subprocess.CompletedProcess[str]]
Render = Callable[..., Objects]


@pytest.fixture(scope="session")
def helm_program() -> Path:
    found = shutil.which("helm")
    if found:
        return Path(found)
    from lead_testing.local_cluster.binaries import ensure_programs
    from lead_testing.local_cluster.errors import CannotRun
    from lead_testing.local_cluster.home import Home

    try:
        return ensure_programs(Home.from_environment(), ["helm"])["helm"]
    except CannotRun as reason:
        pytest.skip(f"helm is neither on PATH nor can it be built: {reason}")


@pytest.fixture(scope="session")
def helm(helm_program: Path) -> Helm:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(helm_program), *arguments]
        return subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False, timeout=120)

    return run


@pytest.fixture(scope="session")
def render(helm: Helm) -> Render:
    def run(values: str = "defaults", *options: str, release: str = "lead", chart: Path = CHART) -> Objects:
        place = ["--namespace", "lead-system", "--kube-version", KUBERNETES, "--skip-tests"]
        done = helm("template", release, str(chart), *place, "-f", str(VALUES / f"{values}.yaml"), *options)
        assert done.returncode == 0, done.stderr
        return [document for document in yaml.safe_load_all(done.stdout) if document]

    return run


@pytest.fixture
def notes(render: Render, tmp_path: Path) -> Callable[..., str]:
    """What helm prints after an install; without a cluster it prints nothing, so a copy makes an object of it."""
    chart = Path(shutil.copytree(CHART, tmp_path / "lead"))
    (chart / "templates/NOTES.txt").rename(chart / "notes.txt")
    (chart / "templates/notes.yaml").write_text('kind: Notes\ntext: {{ tpl (.Files.Get "notes.txt") . | quote }}\n')

    def call(values: str = "defaults", *options: str) -> str:
        (found,) = [each["text"] for each in render(values, *options, chart=chart) if each["kind"] == "Notes"]
        return str(found)

    return call


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with contextlib.ExitStack() as stack:
        try:
            plane = stack.enter_context(ControlPlane(tmp_path_factory.mktemp("control-plane")))
        except CannotRunHere as reason:
            pytest.skip(str(reason))
        plane.kubectl("create", "namespace", "lead-system")
        plane.kubectl("label", "namespace", "lead-system", "pod-security.kubernetes.io/enforce=restricted")
        yield plane


@pytest.fixture(params=sorted(path.stem for path in VALUES.glob("*.yaml")))
def rendered(request: pytest.FixtureRequest, render: Render) -> Objects:
    return render(request.param)
