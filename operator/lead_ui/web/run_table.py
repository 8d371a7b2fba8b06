"""Filters, sorts and cuts the table of runs; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from lead_ui.model import RunRow

PAGE_ROWS = 100
COLUMNS = {  # as the head of the table has them
    "name": "Name",
    "phase": "Phase",
    "stage": "Stage",
    "epoch": "Epoch",
    "loss": "Loss",
    "rate": "Rate",
    "eta": "ETA",
    "checkpoint": "Checkpoint",
    "restarts": "Restarts",
    "created": "Age",
}
_DESCENDING = frozenset({"created", "restarts", "checkpoint", "epoch"})  # what people want to see first is greatest


@dataclass(frozen=True)
class RunTable:
    """One page of the table and what it was asked for."""

    rows: Sequence[RunRow]
    found: int  # that the filters leave
    total: int
    pages: int
    number: int  # of this page, from 1
    query: Mapping[str, str]
    phases: Sequence[str]
    namespaces: Sequence[str]

    def link(self, **changes: str) -> str:
        """Returns the address of the table with some of its settings changed."""
        values = {**self.query, **changes}
        return f"/runs?{urlencode({key: value for key, value in values.items() if value})}"

    def sort_link(self, column: str) -> str:
        """Returns the address of the table sorted by a column, in the other direction where it is sorted by it."""
        return (
            self.link(sort=column, desc="" if self.is_descending(column) else "1", page="")
            if (self.query["sort"] == column)
            else self.link(sort=column, desc="1" if column in _DESCENDING else "", page="")
        )

    def is_descending(self, column: str) -> bool:
        """Returns whether the table is sorted by a column, greatest first."""
        return self.query["sort"] == column and self.query["desc"] == "1"


def arranged(rows: Sequence[RunRow], asked: Mapping[str, str]) -> RunTable:
    """Returns the page of the table that a query asks for; the newest runs first where it names no order."""
    sort = asked.get("sort", "created")
    query = {
        "q": asked.get("q", "")[:200],
        "phase": asked.get("phase", ""),
        "namespace": asked.get("namespace", ""),
        "sort": sort if sort in COLUMNS else "created",
        "desc": "1" if asked.get("desc", "1" if "sort" not in asked else "") == "1" else "",
    }
    parts = query["q"].lower().split()
    found = [
        row
        for row in rows
        if (not query["phase"] or row.phase == query["phase"])
        and (not query["namespace"] or row.key.namespace == query["namespace"])
        and all(part in _text(row) for part in parts)
    ]
    found.sort(key=lambda row: str(row.key))
    present = [row for row in found if _value(row, query["sort"]) is not None]
    absent = [row for row in found if _value(row, query["sort"]) is None]
    present.sort(key=lambda row: _value(row, query["sort"]), reverse=query["desc"] == "1")  # type: ignore[arg-type,return-value]
    pages = max(1, -(-len(found) // PAGE_ROWS))
    number = min(pages, max(1, int(asked["page"]) if asked.get("page", "").isdigit() else 1))
    shown = [*present, *absent][(number - 1) * PAGE_ROWS : number * PAGE_ROWS]
    return RunTable(
        rows=shown,
        found=len(found),
        total=len(rows),
        pages=pages,
        number=number,
        query=query,
        phases=sorted({row.phase for row in rows if row.phase}),
        namespaces=sorted({row.key.namespace for row in rows}),
    )


def _text(row: RunRow) -> str:
    return f"{row.key} {row.recipe} {row.preset} {row.phase} {row.stage} {row.reason}".lower()


def _value(row: RunRow, column: str) -> float | str | None:
    """Returns what a row is sorted by; None comes last in both directions."""
    numbers = {"loss": row.loss, "rate": row.rate.removesuffix("/s"), "epoch": row.epoch.partition("/")[0]}
    if column in numbers:
        try:
            return float(numbers[column])
        except ValueError:
            return None
    if column == "restarts":
        return float(row.restarts)
    texts = {"name": str(row.key), "phase": row.phase, "stage": row.stage, "eta": row.eta,
             "checkpoint": row.checkpoint_time, "created": row.created}  # fmt: skip
    return texts[column] or None
