"""The goal `live`: runs on a real cluster under faults, drawn or replayed; asked of by `make campaign`."""

import json
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from campaign.figures import WANTED, Figures, conclude, write_result
from campaign.live import host
from campaign.live.judge import wrong_end, wrong_words
from campaign.live.kinds import KINDS
from campaign.live.plan import LivePlan, draw_plans
from campaign.live.scene import SAME_WEIGHTS, STORIES, Scene, installed_scene
from campaign.live.trial import Outcome, Trials
from lead_testing.local_cluster import CannotRun, build_images, cluster_for_tests

LIVE = "live"
LOOK_S = 5.0


def try_live(count: int, seed: int, side_by_side: int, out: Path, plans: tuple[LivePlan, ...] = ()) -> dict[str, Any]:
    """Plays plans until `count` faults have struck (0: as many as the goal wants), or exactly `plans`."""
    asked, began = count or WANTED[LIVE], time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="lead-live-") as folder,
        cluster_for_tests() as cluster,
        installed_scene(cluster, build_images(cluster), Path(folder)) as scene,
        Operator(scene) as operator,
    ):
        if cluster.kind != "local":
            raise CannotRun("the goal live stops processes of the cluster itself: it needs the local one")
        trials, outcomes = Trials(scene), list[Outcome]()
        stories = sorted({SAME_WEIGHTS.get(plan.story, plan.story) for plan in plans}) or _references()
        played = _play(trials, [LivePlan(story, ()) for story in stories], side_by_side, lambda _: False)
        trials.references = {outcome.plan.story: outcome.weights for outcome in played}
        trials.references |= {story: trials.references.get(same, {}) for story, same in SAME_WEIGHTS.items()}

        def result() -> dict[str, Any]:
            found = _result(count, asked, seed, time.monotonic() - began, played + outcomes, operator)
            found["violations"] += [{"of a DatasetCache": text} for text in _of_caches(scene)]
            return found

        def enough(outcome: Outcome) -> bool:
            outcomes.append(outcome)
            struck = sum(len(each.struck) for each in outcomes)
            print(f"live: {struck} of {asked} faults, {_verdicts(outcomes)}", flush=True)
            write_result(out, result())  # of as far as it went: whoever interrupts it has that
            return not plans and struck >= asked

        _play(trials, plans or draw_plans(KINDS, tuple(STORIES), seed), side_by_side, enough, len(played))
    return result()


class Operator:
    """Watches the operator's memory, and how its processes end."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._closed = scene, threading.Event()
        self.rss_mib: list[float] = []
        self.ends: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> "Operator":
        threading.Thread(target=self._look, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()

    @property
    def wrong_ends(self) -> list[str]:
        """Ends that nobody brought about."""
        return [wrong for end in self.ends.values() if (wrong := wrong_end(end))]

    def _look(self) -> None:
        while not self._closed.wait(LOOK_S):
            try:
                pods = self._scene.release.items("pods", "app.kubernetes.io/component=operator")
                for pod in pods:
                    for each in pod["status"].get("containerStatuses", []):
                        for state in (each.get("lastState", {}), each.get("state", {})):
                            if end := state.get("terminated"):
                                self.ends[end["containerID"]] = end
                    pids = host.processes_of(pod["metadata"]["uid"])  # the first is only the parent that reaps
                    self.rss_mib += [max(host.resident_mib(pid) for pid, _, _ in pids)] if pids else []
            except (AssertionError, FileNotFoundError, ProcessLookupError, KeyError):
                continue  # the API server is away, or the process has just ended


def _of_caches(scene: Scene) -> list[str]:
    """Returns what is wrong with the sentences that DatasetCaches have shown."""
    return [
        f"{name} holds {wrong}: {text}"
        for (kind, _, name), story in list(scene.watch.seen.items())
        for text in {c["message"] for status in story.statuses for c in status.get("conditions") or []}
        for wrong in (wrong_words(text, story.uid, name) if kind == "DatasetCache" else [])
    ]


def _references() -> list[str]:
    return [story for story in STORIES if story not in SAME_WEIGHTS]


def _play(trials: Trials, plans: Any, side_by_side: int, enough: Any, first: int = 0) -> list[Outcome]:
    """Plays plans side by side, in turn in both namespaces, until there are enough."""
    word, homes, found = trials.scene.release.namespace.rpartition("-")[2], trials.scene.homes, list[Outcome]()
    source: Iterator[tuple[int, LivePlan]] = enumerate(plans, first)
    lock, done = threading.Lock(), threading.Event()

    def one() -> None:
        while not done.is_set():
            with lock:
                number, plan = next(source, (0, None))
            if plan is None:
                return
            outcome = trials.play(plan, f"live-{word}-{number}", homes[number % len(homes)])
            with lock:
                found.append(outcome)
                print(_report(outcome), flush=True)
                if enough(outcome):
                    done.set()

    with ThreadPoolExecutor(side_by_side) as pool:
        for future in [pool.submit(one) for _ in range(side_by_side)]:
            future.result()
    return found


def _report(outcome: Outcome) -> str:
    head = f"live: {outcome.name} {outcome.plan}: {len(outcome.struck)} struck ({outcome.seconds:.0f} s)"
    if not outcome.violations:
        return f"{head}: as promised"
    said = "\n  ".join(outcome.violations)
    return f"{head}\n  {said}\n  replay: make campaign ARGS='--replay {json.dumps(outcome.plan.to_json())}'"


def _verdicts(outcomes: list[Outcome]) -> str:
    wrong = sum(bool(outcome.violations) for outcome in outcomes)
    return f"{len(outcomes)} runs, {wrong} with violations"


def _result(
    count: int, asked: int, seed: int, seconds: float, outcomes: list[Outcome], operator: Operator
) -> dict[str, Any]:
    struck = Counter(kind for outcome in outcomes for kind in outcome.struck)
    besides = Counter(kind for outcome in outcomes for kind in outcome.others)
    figures: Figures = {"operator_rss_mib": operator.rss_mib}
    violations: list[Any] = [outcome.to_dict() for outcome in outcomes if outcome.violations]
    violations += [{"operator ended by itself": end} for end in operator.wrong_ends]
    return conclude(
        LIVE, count=count, asked=asked, done=struck.total(), seed=seed, seconds=seconds, figures=figures,
        violations=violations, kinds=dict(sorted(struck.items())), met_besides=dict(sorted(besides.items())),
        runs=len(outcomes), equal=sum(bool(outcome.weights) and not outcome.violations for outcome in outcomes),
        operator_ends=dict(Counter(f"{end.get('reason')} {end['exitCode']}" for end in operator.ends.values())),
        trials=[outcome.to_dict() for outcome in outcomes],
    )  # fmt: skip
