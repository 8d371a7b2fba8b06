"""Answers in JSON for the charts: lines over one axis, and what is marked on it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lead_ui.assembled import flattened
from lead_ui.curves import Axis, Line, aligned, drawn, grouped
from lead_ui.model import Run
from lead_ui.source import InstanceCurves

MOST_TAGS = 24  # of one answer
MOST_MARKS = 400
SEED_KEYS = ("seed", "seeds", "logdir", "id")  # in which runs of one kind differ


@dataclass(frozen=True)
class RunCurves:
    """The curves of one run under the name that charts show."""

    label: str
    curves: dict[str, InstanceCurves]
    group: str = ""  # of runs that differ in their seed alone


def tags_of(runs: Iterable[RunCurves]) -> list[str]:
    """Returns every tag of scalars, losses and validation first within the order of names."""
    tags = {tag for run in runs for curves in run.curves.values() for tag in curves.history.series}
    return sorted(tags, key=_rank)


def _rank(tag: str) -> tuple[int, str]:
    group = tag.partition("/")[0]
    order = ("epoch", "val", "validation", "train", "loss", "losses", "metrics", "figures")
    return (order.index(group) if group in order else len(order), tag)


def sections(tags: Sequence[str]) -> dict[str, list[str]]:
    """Returns tags by what stands before their first slash."""
    found: dict[str, list[str]] = {}
    for tag in tags:
        group = tag.partition("/")[0] if "/" in tag else "other"
        found.setdefault(group, []).append(tag)
    return found


def answer(
    runs: Sequence[RunCurves], tags: Sequence[str], axis: Axis, span: tuple[float, float] | None, *, seeds: bool
) -> dict[str, Any]:
    """Returns {tag: {names, colours, x, columns}} of the tags; with `seeds`, those of one kind as mean and band.

    A line has the colour of its run, by number, and as one of several of a run a dash of its own; of one run alone each
    stage instance has a colour.
    """
    found = {}
    styles = _styles(runs)
    for tag in tags[:MOST_TAGS]:
        lines, groups = list[Line](), dict[str, str]()
        for run in runs:
            for name, each in run.curves.items():
                series = each.history.series.get(tag)
                label = _label(run, name, alone=len(runs) == 1)
                line = drawn(label, series, axis, each.placement, span) if series else None
                if line is not None:
                    lines.append(line)
                    groups[label] = " ".join(part for part in (run.group or run.label, each.instance.stage) if part)
        shown = grouped(groups, lines) if seeds else lines
        members = {label: [line for line, group in groups.items() if group == label] for label in groups.values()}
        first = {f"{label}, mean of {len(lines)}": lines[0] for label, lines in members.items()}
        drawn_as = [styles[first.get(line.name, line.name)] for line in shown]
        found[tag] = {
            "names": [line.name for line in shown],
            "colours": [colour for colour, _ in drawn_as],
            "dashes": [0 if seeds else dash for _, dash in drawn_as],
            **aligned(shown),
        }
    return found


def _styles(runs: Sequence[RunCurves]) -> dict[str, tuple[int, int]]:
    """Returns colour and dash of each line, by its label."""
    alone = len(runs) == 1
    return {_label(run, name, alone=alone): (place, 0) if alone else (number, place)
            for number, run in enumerate(runs) for place, name in enumerate(run.curves)}  # fmt: skip


def _label(run: RunCurves, instance: str, *, alone: bool) -> str:
    if alone:
        return instance
    return run.label if len(run.curves) == 1 else f"{run.label} {instance}"


def marks(run: Run, curves: dict[str, InstanceCurves], axis: Axis) -> list[dict[str, Any]]:
    """Returns stages, restarts and checkpoints of a run on an axis, by kind, place and text."""
    found = list[dict[str, Any]]()
    for name, each in curves.items():
        place, spans = each.placement, each.history.spans

        def at(step: int, wall: float | None, each: InstanceCurves = each) -> float | None:
            if axis == "time":
                return wall
            return each.placement.epoch_of(step) if axis == "epoch" else float(step + each.placement.steps_before)

        if len(curves) > 1 and spans and (place.steps_before or axis == "time"):
            found.append({"kind": "stage", "x": at(0, spans[0].first_wall), "text": each.instance.stage})
        for attempt in run.attempts:
            if attempt.instance == name and attempt.number > 1:
                x = at(attempt.resumed_from_step or 0, attempt.began)
                found.append({"kind": "restart", "x": x, "text": f"{name}, attempt {attempt.number}"})
        for checkpoint in run.checkpoints:
            if checkpoint.instance == name:
                wall = _wall_of(each, checkpoint.step)
                best = ", best" if checkpoint.is_best else ""
                found.append({"kind": "checkpoint", "x": at(checkpoint.step, wall),
                              "text": f"{name}: checkpoint of epoch {checkpoint.epoch}{best}"})  # fmt: skip
    return [mark for mark in found if mark["x"] is not None][:MOST_MARKS]


def _wall_of(curves: InstanceCurves, step: int) -> float | None:
    """Returns when a step was reached, by the series that has most points."""
    series = max(curves.history.series.values(), key=lambda each: len(each.steps), default=None)
    if series is None or not series.steps:
        return None
    after = next((wall for at, wall in zip(series.steps, series.walls, strict=True) if at >= step), None)
    return after if after is not None else series.walls[-1]


def seed_group(run: Run) -> str:
    """Returns what runs that differ in their seed alone have in common, as text; empty where nothing is known."""
    config = flattened(run.config)
    kept = {key: value for key, value in config.items() if key not in SEED_KEYS}
    return repr(sorted((key, repr(value)) for key, value in kept.items())) if kept else ""
