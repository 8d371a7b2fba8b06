"""What one live run meets, as data: drawn from a seed, written to JSON, replayed from it. Pure."""

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, get_args

When = Literal[
    "training",  # when this share of all epochs is done
    "at once",  # together with the fault before it
    "recovering",  # while the run starts again after the fault before it, or at the latest after RECOVERING_S
    "starting",  # before the first epoch
]
FEWEST, MOST = 3, 8  # faults of one run
LAST_AT = 0.8  # of all epochs: what strikes later may come after the end


class Drawable(Protocol):
    """What drawing must know of a kind of fault."""

    @property
    def ends(self) -> str:
        """The reason it must fail the run for; empty where the run goes on."""

    @property
    def story(self) -> str:
        """The only story in which it means something; empty: any."""

    @property
    def control(self) -> bool:
        """Whether it stops what other faults need in order to strike: it is never drawn at once with another."""


@dataclass(frozen=True)
class LiveFault:
    """One fault of a run, and when it strikes."""

    kind: str
    when: When = "training"
    at: float = 0.0  # share of all epochs; of "training" alone

    def __str__(self) -> str:
        return f"{self.kind} at {self.at:.2f}" if self.when == "training" else f"{self.kind} ({self.when})"


@dataclass(frozen=True)
class LivePlan:
    """One live run: its story, and the faults in the order in which they strike."""

    story: str
    faults: tuple[LiveFault, ...]
    seed: int = 0  # draws what a fault leaves open: which rank, which byte

    def to_json(self) -> str:
        """Returns the plan on one line."""
        return json.dumps({"story": self.story, "faults": [asdict(each) for each in self.faults], "seed": self.seed})

    def __str__(self) -> str:
        return f"{self.story}: {', '.join(map(str, self.faults)) or 'undisturbed'}"


def parse_live_plan(text: str, kinds: Mapping[str, Drawable]) -> LivePlan:
    """Reads a plan; raises ValueError that names what is wrong with it."""
    document: dict[str, Any] = json.loads(text)
    if unknown := sorted(set(document) - {"story", "faults", "seed"}):
        raise ValueError(f"plan has unknown keys {unknown}; known are faults, seed, story")
    faults = tuple(LiveFault(**entry) for entry in document.get("faults", []))
    for fault in faults:
        if fault.kind not in kinds:
            raise ValueError(f"fault {fault.kind!r} is unknown; known are {sorted(kinds)}")
        if fault.when not in get_args(When):
            raise ValueError(f"fault {fault.kind!r} strikes {fault.when!r}; known are {list(get_args(When))}")
    return LivePlan(document["story"], faults, int(document.get("seed", 0)))


def draw_plans(kinds: Mapping[str, Drawable], stories: tuple[str, ...], seed: int) -> Iterator[LivePlan]:
    """Yields plans without end: first every kind once, then every kind again in another order and company."""
    number = 0
    while True:
        rng = random.Random(f"live {seed} {number}")
        left = sorted(kinds)
        rng.shuffle(left)
        while left:
            number += 1
            yield _deal(left, kinds, stories, rng, number)


def _deal(
    left: list[str], kinds: Mapping[str, Drawable], stories: tuple[str, ...], rng: random.Random, number: int
) -> LivePlan:
    """Takes the next kinds that fit one story; at most one that ends the run, which comes last."""
    story, taken, wanted = "", list[str](), rng.randint(FEWEST, MOST)
    for name in list(left):
        kind = kinds[name]
        fits = not kind.story or kind.story == (story or kind.story)
        if len(taken) < wanted and fits and not (kind.ends and any(kinds[each].ends for each in taken)):
            story = story or kind.story
            taken.append(name)
            left.remove(name)
    taken.sort(key=lambda name: bool(kinds[name].ends))
    story = story or rng.choice(stories)
    return LivePlan(story, tuple(_place(taken, kinds, rng)), number)


def _place(taken: list[str], kinds: Mapping[str, Drawable], rng: random.Random) -> Iterator[LiveFault]:
    before = ""
    for position, name in enumerate(taken):
        when: When = "training"
        alone = not before or kinds[name].ends
        if not alone and rng.random() < 0.45:
            together = not kinds[name].control and not kinds[before].control
            when = "at once" if together and rng.random() < 0.5 else "recovering"
        elif not before and rng.random() < 0.15:
            when = "starting"
        at = LAST_AT * (position + 1) / (len(taken) + 1)
        yield LiveFault(name, when, round(at, 2) if when == "training" else 0.0)
        before = name
