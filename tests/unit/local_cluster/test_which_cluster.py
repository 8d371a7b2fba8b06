"""Which cluster is used, and what a machine is told that cannot have one."""

import dataclasses
from pathlib import Path
from typing import Literal

import pytest

from lead_testing import PROJECT_ROOT, local_cluster
from lead_testing.local_cluster import Home, cluster, delete, processes
from lead_testing.local_cluster.binaries import PROVENANCE_PROGRAMS, SOURCES, GoVersions
from lead_testing.local_cluster.errors import CannotRun
from lead_testing.local_cluster.packages import FIRST_DISK_GB, Machine, what_is_missing
from lead_testing.local_cluster.processes import Part
from lead_testing.local_cluster.which_cluster import decide_cluster

ABLE = Machine(
    system="Linux", is_root=True, has_apt=True, has_cgroups=True, go=GoVersions("1.25.0", "1.26.8"),
    missing_packages=(), home=Path("/big"), free_disk_gb=200, has_images=False,
)  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "started", "docker", "chosen"),
    [
        ("", None, False, "local"),
        ("", None, True, "kind"),
        ("", "local", True, "local"),
        ("", "kind", True, "kind"),
        ("current", "local", True, "current"),
        ("local", "kind", True, "local"),
        ("kind", None, True, "kind"),
    ],
)
def test_the_cluster_is_the_one_asked_for_else_the_one_started_else_kind_else_local(
    wanted: str, started: Literal["kind", "local"] | None, docker: bool, chosen: str
) -> None:
    assert decide_cluster({"LEAD_CLUSTER": wanted}, started=started, docker_answers=docker) == chosen


def test_docker_that_came_after_the_local_cluster_does_not_hide_it_from_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, stopped = Home(tmp_path), []
    monkeypatch.delenv("LEAD_CLUSTER", raising=False)
    monkeypatch.setattr(local_cluster, "docker_answers", lambda: True)
    monkeypatch.setattr(local_cluster.kind, "down", lambda home: stopped.append("kind"))
    monkeypatch.setattr(local_cluster.cluster, "down", lambda home, state: stopped.append("local"))  # needs root
    monkeypatch.setattr(local_cluster.cluster, "remnants", lambda state: [])
    (home.cluster / "etcd").mkdir(parents=True)
    (home.cluster / "kubeconfig").touch()
    delete(home)
    assert stopped == ["local"]


def test_a_local_cluster_is_known_by_its_processes_or_files_and_not_by_the_kubeconfig_of_kind(tmp_path: Path) -> None:
    state = tmp_path / "cluster"
    assert not cluster.was_started(state)
    pid = processes.start(state, Part("sleeper", ("sleep", "300"), tmp_path / "log")).pid
    assert cluster.was_started(state)
    processes.stop(pid)
    state.mkdir()
    (state / "kubeconfig").touch()
    assert not cluster.was_started(state)
    (state / "kernel-settings.json").touch()
    assert cluster.was_started(state)


def test_a_cluster_that_does_not_exist_is_named_with_the_choices() -> None:
    with pytest.raises(CannotRun, match="'minikube', expected current, kind or local"):
        decide_cluster({"LEAD_CLUSTER": "minikube"}, started=None, docker_answers=True)


def test_kind_without_docker_is_said_at_once() -> None:
    with pytest.raises(CannotRun, match="LEAD_CLUSTER is kind, but no Docker engine answers"):
        decide_cluster({"LEAD_CLUSTER": "kind"}, started=None, docker_answers=False)
    with pytest.raises(CannotRun, match="kind was started here, but no Docker engine answers"):
        decide_cluster({}, started="kind", docker_answers=False)


def test_nothing_is_missing_on_an_able_machine() -> None:
    assert what_is_missing(ABLE) == ""


@pytest.mark.parametrize(
    ("lack", "named"),
    [
        ({"system": "Darwin"}, "this is Darwin"),
        ({"is_root": False}, "run this as root"),
        ({"has_cgroups": False}, "/sys/fs/cgroup"),
        ({"has_apt": False, "missing_packages": ("runc", "buildah")}, "install runc, buildah"),
        ({"go": GoVersions("1.25.0", "")}, "takes Go 1.25.0 or newer and there is no `go` on PATH"),
        ({"go": GoVersions("1.25.0", "1.19.8")}, "takes Go 1.25.0 or newer and `go` here is 1.19.8"),
        ({"free_disk_gb": 9}, "/big has 9 GB free"),
    ],
)
def test_what_is_missing_is_one_sentence_with_a_way_out(lack: dict[str, object], named: str) -> None:
    sentence = what_is_missing(dataclasses.replace(ABLE, **lack))  # type: ignore[arg-type]
    assert named in sentence
    assert sentence.endswith("set LEAD_CLUSTER=current.")
    assert "\n" not in sentence


@pytest.mark.parametrize(
    "change", [{"go": GoVersions("", "")}, {"has_apt": False}, {"free_disk_gb": 9, "has_images": True}]
)
def test_what_is_built_or_installed_already_is_not_asked_for(change: dict[str, object]) -> None:
    assert what_is_missing(dataclasses.replace(ABLE, **change)) == ""  # type: ignore[arg-type]


def test_the_readme_names_the_go_and_the_disk_that_are_looked_for() -> None:
    told = (PROJECT_ROOT / "README.md").read_text()
    files = [file for file in SOURCES.glob("*/go.mod") if file.parent.name not in PROVENANCE_PROGRAMS]  # on request
    lines = [line for file in files for line in file.read_text().splitlines()]
    newest = max(line.removeprefix("go ").removesuffix(".0") for line in lines if line.startswith("go "))
    assert f"with Go {newest} and Python 3.11" in told
    assert f"and {FIRST_DISK_GB} GB of disk in" in told
