"""What `make test` answers: a ring that could not run has not passed, and hides no other."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lead_testing import rings
from lead_testing.local_cluster import CannotRun


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The rings whose pytest was started; none is."""
    started: list[str] = []
    monkeypatch.setattr(rings, "make_venv", lambda: None)
    monkeypatch.setattr(rings, "run_pytest", lambda name: started.append(name) or 0)

    @contextmanager
    def servers(ring: str) -> Iterator[None]:
        if ring == "api":
            raise CannotRun("no Go here; install golang")
        yield

    monkeypatch.setattr(rings, "servers_of", servers)
    return started


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["rings", *words])
    return rings.main()


def test_a_ring_without_its_servers_has_failed_and_the_next_one_runs(
    ran: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "unit", "api", "chart") == 1
    told = capfd.readouterr()
    assert ran == ["unit", "chart"]
    assert "ring api: no Go here; install golang" in told.err
    verdicts = [line.split(" s  ")[1] for line in told.out.splitlines() if " s  " in line]
    assert verdicts == ["passed", "passed", "FAILED (its servers cannot run here)", "passed"]


def test_all_rings_run_by_default_and_one_that_fails_is_told(ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rings, "servers_of", lambda ring: servers_that_run())
    assert run(monkeypatch) == 0 and ran == list(rings.DEFAULT_RINGS)
    monkeypatch.setattr(rings, "run_pytest", lambda name: int(name == "chart"))
    assert run(monkeypatch) == 1


def test_what_a_ring_needs_is_made_beside_the_ring_before_it_and_ends_with_its_own(
    ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = {name: threading.Event() for name in ("unit", "chart", "api")}, list[str]()

    @contextmanager
    def servers(ring: str) -> Iterator[None]:
        begun[ring].set()
        yield
        ended.append(ring)

    def tests(ring: str) -> int:
        following = {"unit": "chart", "chart": "api"}.get(ring)
        assert following is None or begun[following].wait(60)
        assert ended == ran and (ring != "unit" or not begun["api"].is_set())
        ran.append(ring)
        return 0

    monkeypatch.setattr(rings, "servers_of", servers)
    monkeypatch.setattr(rings, "run_pytest", tests)
    assert run(monkeypatch, "unit", "chart", "api") == 0
    assert ended == ran == ["unit", "chart", "api"]


def test_an_interrupt_ends_what_was_made_for_the_next_ring(ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    made, ended = threading.Event(), list[str]()

    @contextmanager
    def servers(ring: str) -> Iterator[None]:
        if ring == "chart":
            made.set()
        yield
        ended.append(ring)

    def tests(ring: str) -> int:
        assert made.wait(60)
        for thread in threading.enumerate():
            if thread.name == "servers of chart":
                thread.join(60)
        raise KeyboardInterrupt

    monkeypatch.setattr(rings, "servers_of", servers)
    monkeypatch.setattr(rings, "run_pytest", tests)
    assert run(monkeypatch, "unit", "chart", "api") == 130
    assert ended == ["unit", "chart"]


def test_an_unknown_ring_is_named(
    ran: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(monkeypatch, "api", "apis")
    assert "unknown ring 'apis'; expected one of" in capfd.readouterr().err and not ran


@contextmanager
def servers_that_run() -> Iterator[None]:
    yield
