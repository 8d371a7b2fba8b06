"""How a status is written and read: frozen dataclasses in the code, JSON at the API server.

One rule each way. Written: a field that has a default is left out while it is empty (None, "", (), {} or an object of
empty fields). Read: what today's model does not know, or not with this type, is as if it were absent, and an entry that
lacks a required field is dropped: the API server prunes and checks what is written, not what was stored before the CRD
was replaced.
"""

import copy
import dataclasses
import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import ConfigDict, Strict, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from lead_operator.names import Condition

MAX_MESSAGE = 512  # characters of a failure's and of a stage's message; the CRDs hold both limits
MAX_CONDITION_MESSAGE = 2048

JsonObject = dict[str, Any]
Int = Annotated[int, Strict()]
Number = Annotated[float, Strict()]
Flag = Annotated[bool, Strict()]
_EMPTY: tuple[Any, ...] = (None, "", [], {})


def _key(name: str) -> str:
    return to_camel(name.rstrip("_"))  # of a field whose name Python has taken: class_


@dataclass(frozen=True, kw_only=True)
class StatusPart:
    """An object of a status; its JSON keys are the field names in camelCase."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(alias_generator=_key)


Part = TypeVar("Part", bound=StatusPart)


def parse_status(kind: type[Part], status: object) -> Part:
    """Returns a status as today's model knows it; what does not fit is dropped, so that any value can be read."""
    while True:  # each round drops something, down to the empty object
        try:
            parsed: Part = _model(kind).adapter.validate_python(status)
            return parsed
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False, include_input=False)
            status = _without(status, [e["loc"][:-1] if e["type"] == "missing" else e["loc"] for e in faults])


def status_json(part: StatusPart) -> JsonObject:
    """Returns a status as the API server stores it.

    An object without fields is left out too: server-side apply of `{}` over one that had fields stores null, which the
    schema refuses.
    """
    return {
        key: value
        for name, key, has_default in _model(type(part)).fields
        if (value := _json(getattr(part, name))) not in _EMPTY or not has_default
    }


def field_keys(kind: type[StatusPart], *names: str) -> tuple[str, ...]:
    """Returns the JSON keys of fields; raises KeyError for one that `kind` does not have."""
    keys = {name: key for name, key, _ in _model(kind).fields}
    return tuple(keys[name] for name in names)


def _json(value: Any) -> Any:
    if isinstance(value, StatusPart):
        return status_json(value)
    return [_json(entry) for entry in value] if isinstance(value, tuple) else value


def _without(status: Any, locations: Iterable[tuple[int | str, ...]]) -> Any:
    """Returns a copy of a status without what lies at the locations."""
    doomed = dict.fromkeys(locations)
    if () in doomed:
        return {}
    kept = copy.deepcopy(status)
    for path in reversed(doomed):  # from the end, so that positions in lists stay what they are
        if any(path[:length] in doomed for length in range(1, len(path))):
            continue
        holder = functools.reduce(lambda found, step: found[step], path[:-1], kept)
        del holder[path[-1]]
    return kept


@dataclass(frozen=True)
class _Model:
    """What is worked out once for each class."""

    adapter: TypeAdapter[Any]
    fields: tuple[tuple[str, str, bool], ...]  # name, JSON key, whether there is a default


_MODELS: dict[type[StatusPart], _Model] = {}


def _model(kind: type[StatusPart]) -> _Model:
    if kind not in _MODELS:
        fields = tuple((each.name, _key(each.name), _has_default(each)) for each in dataclasses.fields(kind))
        _MODELS[kind] = _Model(TypeAdapter(kind), fields)
    return _MODELS[kind]


def _has_default(field: dataclasses.Field[Any]) -> bool:
    absent = dataclasses.MISSING
    return field.default is not absent or field.default_factory is not absent


@dataclass(frozen=True, kw_only=True)
class ConditionStatus(StatusPart):
    """One entry of status.conditions."""

    type: str
    status: str  # True | False | Unknown
    observed_generation: Int | None = None
    last_transition_time: str
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class FailureStatus(StatusPart):
    """status.lastFailure: why the newest failed pod ended."""

    time: str | None = None
    pod: str = ""
    node: str = ""
    exit_code: Int | None = None
    class_: str = ""
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class ResourceStatus(StatusPart):
    """What a status of either kind begins with."""

    observed_generation: Int | None = None
    phase: str = ""
    reason: str = ""
    conditions: tuple[ConditionStatus, ...] = ()
    last_failure: FailureStatus | None = None
    start_time: str | None = None
    completion_time: str | None = None

    def condition(self, kind: Condition) -> ConditionStatus | None:
        """Returns the condition of one type, or None."""
        return next((each for each in self.conditions if each.type == kind.value), None)

    def holds(self, kind: Condition) -> bool:
        """Returns whether a condition is True."""
        found = self.condition(kind)
        return found is not None and found.status == "True"
