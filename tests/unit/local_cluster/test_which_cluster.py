"""Which cluster is used, and what a machine is told that cannot have one."""

import dataclasses

import pytest

from lead_testing.local_cluster.errors import CannotRun
from lead_testing.local_cluster.packages import Machine, what_is_missing
from lead_testing.local_cluster.which_cluster import decide_cluster

ABLE = Machine(
    system="Linux", is_root=True, has_apt=True, has_cgroups=True, has_go=True, programs_built=False, missing_packages=()
)


@pytest.mark.parametrize(
    ("wanted", "docker", "chosen"),
    [
        ("", False, "local"),
        ("", True, "kind"),
        ("current", True, "current"),
        ("local", True, "local"),
        ("kind", True, "kind"),
    ],
)
def test_the_cluster_is_the_one_asked_for_else_kind_else_local(wanted: str, docker: bool, chosen: str) -> None:
    assert decide_cluster({"LEAD_CLUSTER": wanted}, docker_answers=docker) == chosen


def test_a_cluster_that_does_not_exist_is_named_with_the_choices() -> None:
    with pytest.raises(CannotRun, match="'minikube', expected current, kind or local"):
        decide_cluster({"LEAD_CLUSTER": "minikube"}, docker_answers=True)


def test_kind_without_docker_is_said_at_once() -> None:
    with pytest.raises(CannotRun, match="no Docker engine answers"):
        decide_cluster({"LEAD_CLUSTER": "kind"}, docker_answers=False)


def test_nothing_is_missing_on_an_able_machine() -> None:
    assert what_is_missing(ABLE) == ""


@pytest.mark.parametrize(
    ("lack", "named"),
    [
        ({"system": "Darwin"}, "this is Darwin"),
        ({"is_root": False}, "run this as root"),
        ({"has_cgroups": False}, "/sys/fs/cgroup"),
        ({"has_apt": False, "missing_packages": ("runc", "buildah")}, "install runc, buildah"),
        ({"has_go": False}, "`go` (1.24 or newer)"),
    ],
)
def test_what_is_missing_is_one_sentence_with_a_way_out(lack: dict[str, object], named: str) -> None:
    sentence = what_is_missing(dataclasses.replace(ABLE, **lack))  # type: ignore[arg-type]
    assert named in sentence
    assert sentence.endswith("set LEAD_CLUSTER=current.")
    assert "\n" not in sentence


@pytest.mark.parametrize("change", [{"has_go": False, "programs_built": True}, {"has_apt": False}])
def test_what_is_built_or_installed_already_is_not_asked_for(change: dict[str, object]) -> None:
    assert what_is_missing(dataclasses.replace(ABLE, **change)) == ""  # type: ignore[arg-type]
