"""Long work says how far it is: by expected seconds, not by the number of steps."""

from collections.abc import Iterator

import pytest

from lead_testing.local_cluster import progress


@pytest.fixture(autouse=True)
def of_its_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Other tests' steps are not counted here."""
    for name, empty in (("_expected_s", {}), ("_done", set()), ("_running", {})):
        monkeypatch.setattr(progress, name, empty)
    yield


def test_shares_are_of_the_expected_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    progress.expect({"kube-apiserver": 30.0, "helm": 10.0, "image trainer": 60.0})
    with progress.step("building kube-apiserver", "kube-apiserver"):
        pass
    progress.finish("helm")
    assert progress.percent() == 40
    progress.finish("image trainer")
    progress.say("done")
    lines = capsys.readouterr().out.splitlines()
    assert ["0 %" in lines[0], " 30 %" in lines[1], "100 %" in lines[-1]] == [True, True, True]


def test_a_running_step_counts_up_to_what_was_expected_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    progress.expect({"helm": 10.0, "minio": 30.0})
    now = progress.time.monotonic()
    with progress.step("building helm", "helm"):
        monkeypatch.setattr(progress.time, "monotonic", lambda: now + 3600)
        assert progress.percent() == 25


def test_a_step_that_fails_is_not_done() -> None:
    progress.expect({"helm": 10.0})
    with pytest.raises(OSError), progress.step("building helm", "helm"):
        raise OSError("no room")
    progress._running.clear()
    assert progress.percent() == 0


def test_without_expectations_no_share_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    progress.say("started etcd")
    assert "%" not in capsys.readouterr().out
