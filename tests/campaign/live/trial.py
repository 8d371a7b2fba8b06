"""Plays one plan on a live run; judges its end, its weights, what it cost, and every sentence by the promises."""

import json
import random
import threading
import time
import traceback
from dataclasses import dataclass, field
from typing import Any

from campaign.live import host
from campaign.live.judge import ACCOUNTS, Cost, unexplained, wrong_history, wrong_restarts, wrong_words
from campaign.live.kinds import FREE, KINDS
from campaign.live.plan import LiveFault, LivePlan
from campaign.live.scene import EPOCHS, LiveRun, Scene, insist
from lead_protocol.store.object_store import ObjectStore
from lead_testing.installed import Installed
from lead_testing.live_runs import newest_manifest

RECOVERING_S, END_S, GONE_S = 20.0, 900.0, 90.0
HUNG = Cost(1, ("program",))  # of a run that may stand still for seconds alone
CHILDREN = "pods,services,persistentvolumeclaims"


@dataclass
class Met:
    """One fault that struck."""

    kind: str
    by: str  # the run that it was drawn for
    alone: bool  # it met a run that trained, not one that another fault had hit
    began: float
    ended: float = 0.0
    said: str = ""  # why it could not strike


@dataclass
class Outcome:
    """What one plan came to."""

    plan: LivePlan
    name: str
    seconds: float = 0.0
    met: list[Met] = field(default_factory=list)  # those drawn for it
    others: list[str] = field(default_factory=list)  # kinds of shared faults that were drawn for other runs
    late: list[str] = field(default_factory=list)  # faults that found the run at its end
    violations: list[str] = field(default_factory=list)
    weights: dict[str, str] = field(default_factory=dict)  # of the final checkpoint of each stage
    restarts: dict[str, Any] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)  # of its attempts, as status had them

    @property
    def struck(self) -> list[str]:
        """Kinds that struck."""
        return [met.kind for met in self.met if not met.said]

    def to_dict(self) -> dict[str, Any]:
        """Returns what the result file holds of it."""
        return {
            "plan": self.plan.to_json(), "run": self.name, "seconds": round(self.seconds), "struck": self.struck,
            "met_besides": self.others, "late": self.late, "restarts": self.restarts,
            "could_not_strike": {met.kind: met.said for met in self.met if met.said},
            "weights": self.weights, "violations": self.violations, "failures": self.failures,
        }  # fmt: skip


class Trials:
    """Plays plans on one scene, several at a time; remembers which shared fault met which run."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.shared: list[Met] = []
        self.references: dict[str, dict[str, str]] = {}

    def play(self, plan: LivePlan, name: str, home: Installed) -> Outcome:
        """Plays one plan to its end; what goes wrong with the driver itself is a violation too."""
        run = LiveRun(self.scene, home, name, plan, random.Random(f"{plan.seed} {plan}"))
        outcome, began = Outcome(plan, name), time.monotonic()
        try:
            if plan.story == "warm":
                host.free_volumes()
            run.do("apply", "-f", "-", stdin=json.dumps(run.manifest))
            if not run.wait(lambda it: it.story.uid, 60):
                raise LookupError(f"{name} was applied and is not seen")
            for step in _steps(plan.faults):
                self._strike(run, step, outcome)
            if not run.wait(lambda it: it.over, END_S):
                outcome.violations.append(f"not over {END_S:.0f} s after its last fault: {run.status.get('phase')}")
            self._judge(run, outcome, began)
        except Exception:
            outcome.violations.append(traceback.format_exc(limit=-3))
        outcome.seconds = time.monotonic() - began
        return outcome

    def _strike(self, run: LiveRun, step: list[LiveFault], outcome: Outcome) -> None:
        first = step[0]
        if first.when == "training":
            wanted = first.at * EPOCHS
            run.wait(lambda it: it.over or (it.status.get("phase") == "Running" and it.epochs >= wanted), END_S)
        elif first.when == "starting":
            run.wait(lambda it: it.over or it.status.get("phase") in ("Starting", "Running"), END_S)
        else:
            run.wait(lambda it: it.over or it.status.get("phase") in ("Recovering", "Starting"), RECOVERING_S)
        if any(KINDS[fault.kind].shared for fault in step):
            with self.scene.turn:
                self._strike_now(run, step, outcome)
        else:
            self._strike_now(run, step, outcome)

    def _strike_now(self, run: LiveRun, step: list[LiveFault], outcome: Outcome) -> None:
        if run.over or run.epochs >= EPOCHS - 2:
            outcome.late += [fault.kind for fault in step]
            return
        alone = len(step) == 1 and run.status.get("phase") == "Running" and run.epochs < EPOCHS - 4
        threads = [threading.Thread(target=self._one, args=(run, fault, alone, outcome)) for fault in step]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _one(self, run: LiveRun, fault: LiveFault, alone: bool, outcome: Outcome) -> None:
        kind, met = KINDS[fault.kind], Met(fault.kind, run.name, alone, time.monotonic())
        outcome.met.append(met)
        if kind.shared:
            self.shared.append(met)
        print(f"live: {run.name} ({outcome.plan.story}, epoch {run.epochs}): {fault}", flush=True)
        try:
            kind.strike(run)
        except LookupError as error:
            met.said = str(error)
        except Exception:
            met.said = traceback.format_exc(limit=-3)
            outcome.violations.append(f"{fault.kind} could not strike: {met.said}")
        met.ended = time.monotonic()

    def _judge(self, run: LiveRun, outcome: Outcome, began: float) -> None:
        found, status, kinds = outcome.violations, run.status, [KINDS[met.kind] for met in outcome.met]
        besides = [met for met in self.shared if met.by != run.name and (met.ended or began) >= began]
        outcome.others = [met.kind for met in besides if not met.said]
        outcome.restarts = status.get("restarts", {})
        failures = [json.dumps(each["lastFailure"]) for each in run.story.statuses if each.get("lastFailure")]
        outcome.failures = list(dict.fromkeys(failures))
        limited = run.plan.story == "rare"
        stalled = [HUNG for met in (*outcome.met, *besides) if limited and KINDS[met.kind].stalls]
        ends = next((KINDS[name].ends for name in outcome.struck if KINDS[name].ends), "")
        reason = next((c["reason"] for c in status.get("conditions", []) if c["type"] in ("Failed", "Succeeded")), "")
        if (status.get("phase"), reason) != (("Failed", ends) if ends else ("Succeeded", "AllStagesDone")):
            found.append(
                f"ended as {status.get('phase')} {reason}, expected {ends or 'Succeeded'}: {_sentences(status)}"
            )
        else:
            costs = [_cost(met) for met in outcome.met] + [KINDS[met.kind].others for met in besides] + stalled
            found += wrong_restarts(outcome.restarts, costs) if not ends else []
        if status.get("phase") == "Succeeded":
            outcome.weights = self._weights(run)
            expected = self.references.get(run.plan.story)
            if expected is not None and outcome.weights != expected:
                found.append(f"weights are {outcome.weights}, expected {expected}")
        forged = any(kind.forges for kind in kinds)
        found += dict.fromkeys(wrong_history(run.story.statuses, forged))
        explained = frozenset(r for kind in kinds for r in kind.reasons) | frozenset(
            r for met in besides for r in KINDS[met.kind].reasons
        )
        explained |= {"Hung"} if stalled else set()
        events = [e for e in insist(lambda: run.home.items("events")) if e["involvedObject"]["name"] == run.name]
        found += unexplained(events, explained | ({"Failed", ends} if ends else set()))
        found += self._words(run, events, forged)
        found += self._left(run)

    def _weights(self, run: LiveRun) -> dict[str, str]:
        def read(store: ObjectStore) -> dict[str, str]:
            stages = [(stage["name"], int(stage["seed"])) for stage in run.status["stages"]]
            found = {name: newest_manifest(store, run.home, run.name, name, seed) for name, seed in stages}
            return {name: str(manifest["parameters_sha256"]) for name, manifest in found.items()}

        return run.scene.in_the_bucket(read)

    def _words(self, run: LiveRun, events: list[dict[str, Any]], forged: bool) -> list[str]:
        """Returns what is wrong with every sentence that the run, or an event of it, has ever shown."""
        said = {
            (c["message"], f"condition {c['type']} {c['reason']}")
            for status in run.story.statuses
            for c in status.get("conditions") or []
            if not (forged and c["message"] == "forged")
        }
        said |= {(event.get("message", ""), f"event {event.get('reason')}") for event in events}
        return [
            f"{where} holds {wrong}: {text}"
            for text, where in sorted(said)
            for wrong in wrong_words(text, run.story.uid, run.name)
        ]

    def _left(self, run: LiveRun) -> list[str]:
        """Deletes the run; returns what of it is still there after a while."""
        mine = f"lead.dev/owner-uid={run.story.uid}"
        live = [p["metadata"]["name"] for p in run.pods()]
        if live and not run.wait(lambda it: not it.pods(), GONE_S):
            return [f"pods {live} run after the end"]
        run.do("delete", "trainingrun", run.name, "--wait", "--timeout=60s", "--ignore-not-found")
        left = insist(lambda: run.home.items(CHILDREN, mine))
        deadline = time.monotonic() + GONE_S
        while left and time.monotonic() < deadline:
            time.sleep(1)
            left = insist(lambda: run.home.items(CHILDREN, mine))
        return [f"{each['kind']} {each['metadata']['name']} is left" for each in left]


def _cost(met: Met) -> Cost:
    if met.said:
        return FREE
    cost = KINDS[met.kind].cost
    return cost if met.alone or not cost.most else Cost(cost.most, ACCOUNTS)


def _steps(faults: tuple[LiveFault, ...]) -> list[list[LiveFault]]:
    """Returns the faults in steps: those that strike at once are one."""
    steps: list[list[LiveFault]] = []
    for fault in faults:
        if fault.when == "at once" and steps:
            steps[-1].append(fault)
        else:
            steps.append([fault])
    return steps


def _sentences(status: dict[str, Any]) -> str:
    return "; ".join(f"{c['type']}={c['status']} {c['reason']}: {c['message']}" for c in status.get("conditions", []))
