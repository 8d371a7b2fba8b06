"""What must hold of a live run after its faults: its end, what the faults cost, and every sentence. Pure."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lead_testing.statuses import newest_entry

# What no sentence for people may hold, whatever it speaks of.
_NEVER = {
    "a Python object": re.compile(r"0x[0-9a-f]{6,}|\bobject at\b|<class |Traceback|Exception\(|Error\("),
    "a value that is not there": re.compile(r"\bNone\b|\bnan\b|\{\}|\[\]|\(\)"),
    "a placeholder": re.compile(r"\{[a-z_.]+\}|%[sd]\b"),
    "a joint with nothing to join": re.compile(r";\s*;|:\s*;|;\s*$|:\s*$|^\s*;|  "),
}
_UID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_RUN = re.compile(r"\blive-[0-9a-f]{4}-\d+\b")
_ALL_RUN = re.compile(r"^all \d+ pods of attempt (\d+) run$")
_TRAINS = re.compile(r"^attempt (\d+) is training$")
_ABOUT_TO_START = re.compile(r"^attempt (\d+) failed; the next one is about to start$")
# Reasons of Warnings that a start or a restart brings along on a crowded node, whatever the fault was.
ORDINARY = frozenset(
    {"Advisory", "FailedMount", "Unschedulable", "LostPeer", "PodGone", "GroupIncomplete", "WaitingForOldPods"}
)
ACCOUNTS = ("program", "infrastructure", "voluntary")
ENDS_WELL = (0, 137, 143)  # of the operator's process: asked, or killed
_LEASE_IS_LOST = "LeaseLost: "  # as promised where it stands still, its lease is taken, or the API server is away


@dataclass(frozen=True)
class Cost:
    """What one fault may cost: at most so many restarts, on one of these accounts each; `least` of them surely."""

    most: int = 0
    accounts: tuple[str, ...] = ()
    least: int = 0


def wrong_words(text: str, own_uid: str, own_name: str) -> list[str]:
    """Returns what is wrong with one sentence about the object `own_name`, whatever it says."""
    found = [what for what, pattern in _NEVER.items() if pattern.search(text)]
    found += ["the UID of another object" for uid in set(_UID.findall(text)) if uid != own_uid]
    if _RUN.fullmatch(own_name):
        found += ["the name of another run" for name in set(_RUN.findall(text)) if name != own_name]
    return found if text.strip() else ["nothing at all"]


def wrong_restarts(restarts: dict[str, Any], costs: Sequence[Cost]) -> list[str]:
    """Returns how a run's restarts differ from what its faults may cost."""
    found = []
    spent = {account: int(restarts.get(account) or 0) for account in ACCOUNTS}
    for account, number in spent.items():
        may = sum(cost.most for cost in costs if account in cost.accounts)
        if number > may:
            found.append(f"{number} restarts are counted as {account}, the faults explain {may}")
    total, least, most = sum(spent.values()), sum(c.least for c in costs), sum(c.most for c in costs)
    if not least <= total <= most:
        found.append(f"{total} restarts, expected {least} to {most}")
    if "total" in restarts and int(restarts["total"]) != total:
        found.append(f"restarts.total is {restarts['total']}, its parts add up to {total}")
    return found


def unexplained(events: Iterable[dict[str, Any]], explained: frozenset[str]) -> list[str]:
    """Returns the Warning events whose reason none of the faults explains."""
    return [
        f"unexplained Warning {event['reason']}: {event.get('message')}"
        for event in events
        if event.get("type") == "Warning" and event.get("reason") not in explained | ORDINARY
    ]


def wrong_end(terminated: dict[str, Any]) -> str:
    """Returns how a process of the operator has ended, with its last log line; empty where that is as promised."""
    code, reason, line = int(terminated["exitCode"]), terminated.get("reason"), _last_line(terminated)
    causes = str(line.get("error") or "").split("; ") if line.get("event") == "operator_ends" else []
    well = code in ENDS_WELL or (causes and all(cause.startswith(_LEASE_IS_LOST) for cause in causes))
    if well and reason != "OOMKilled":
        return ""
    return f"{reason} {code}: {'; '.join(causes) or line or 'its log says nothing'}"


def _last_line(terminated: dict[str, Any]) -> dict[str, Any]:
    """Returns the last log line, which the kubelet keeps as the message of a process that failed."""
    *_, last = ["", *str(terminated.get("message") or "").strip().splitlines()]
    try:
        line = json.loads(last)
    except ValueError:
        return {"event": last} if last else {}
    return line if isinstance(line, dict) else {"event": last}


def wrong_history(statuses: Sequence[dict[str, Any]], forged: bool = False) -> Iterator[str]:
    """Yields where the statuses of one run, in their order, contradict themselves or each other.

    `forged`: somebody else wrote statuses too, so that only what each says of itself is held against it.
    """
    attempts: dict[str, int] = {}
    spent, over, awaited = 0, "", 0
    for status in statuses:
        said = {c["type"]: c for c in status.get("conditions") or []}
        newest = max((int(e.get("attempt") or 0) for e in status.get("stages") or []), default=0)
        current = _current_attempt(status)
        for kind, pattern in (("Ready", _ALL_RUN), ("Progressing", _TRAINS)):
            match = pattern.match(said.get(kind, {}).get("message", ""))
            if match and not forged and current and int(match[1]) != current:
                yield f"{kind} speaks of attempt {match[1]} while {current} is the newest"
        if match := _ABOUT_TO_START.match(said.get("Ready", {}).get("message", "")):
            awaited = int(match[1])
        elif awaited and (newest > awaited or status.get("phase") != "Recovering"):
            if newest <= awaited and status.get("phase") in ("Running", "Starting") and not forged:
                yield f"attempt {awaited} was over and the next about to start, but {newest} goes on"
            awaited = 0
        if forged:
            continue
        for entry in status.get("stages") or []:
            name = f"{entry['name']}-s{entry['seed']}"
            if int(entry.get("attempt") or 0) < attempts.get(name, 0):
                yield f"the attempt of {name} went back from {attempts[name]} to {entry.get('attempt')}"
            attempts[name] = max(attempts.get(name, 0), int(entry.get("attempt") or 0))
        if "restarts" in status:
            if int(status["restarts"].get("total") or 0) < spent:
                yield f"restarts went back from {spent} to {status['restarts'].get('total')}"
            spent = int(status["restarts"].get("total") or 0)
        if over and status.get("phase") and status["phase"] != over:
            yield f"the run was {over} and is {status['phase']}"
        over = over or (status["phase"] if status.get("phase") in ("Succeeded", "Failed") else "")


def _current_attempt(status: dict[str, Any]) -> int:
    return int(newest_entry(status).get("attempt", 0))
