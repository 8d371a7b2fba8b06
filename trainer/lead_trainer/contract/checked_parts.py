"""Refuses a part that is misspelt or of a wrong type where it is written: when a recipe is imported.

`checked_parts` checks the values of a recipe (`Recipe` and its groups of fields), `Overridable` the classes that a
recipe derives from. Without it a misspelt optional part would be left out in silence.
"""

import difflib
import inspect
import types
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from lead_trainer.errors import BadConfig

T = TypeVar("T")
NEAR = 0.75  # how similar a name must be to a known one, of 1, to count as a misspelling


class BadPart(BadConfig, TypeError):
    """A recipe has a part that does not exist, lacks one, or has one of a wrong type."""


def checked_parts(cls: type[T]) -> type[T]:
    """Makes a frozen, keyword-only dataclass check the names and types it is made of; raises BadPart."""
    plain: Any = cls.__init__
    owner: Any = cls

    def checked(self: T, *unnamed: Any, **parts: Any) -> None:
        what = _title(cls, parts)
        if unnamed:
            raise BadPart(f"{what}: found {len(unnamed)} values without a name; name each part")
        known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
        for name, value in parts.items():
            if name not in known:
                raise BadPart(f"{what}: there is no part {name!r}; {_near(name, list(known))}")
            if fault := type_fault(value, _hints(owner)[name]):
                raise BadPart(f"{what}: part {name!r}: {fault}")
        required = [n for n, f in known.items() if f.default is MISSING and f.default_factory is MISSING]
        if lacking := [name for name in required if name not in parts]:
            raise BadPart(f"{what}: lacks {', '.join(map(repr, lacking))}, which every one must have")
        plain(self, **parts)

    cls.__init__ = checked  # type: ignore[method-assign,assignment]
    return cls


def _title(cls: type, parts: Mapping[str, Any]) -> str:
    return f"{cls.__name__} {parts['name']!r}" if isinstance(parts.get("name"), str) else cls.__name__


def _near(name: str, known: list[str], remedy: str = "it has") -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else f"{remedy} {', '.join(known)}"


@cache
def _hints(cls: Any) -> dict[str, Any]:
    """Returns the annotations of a class, with `Any` for names that only a type checker imports (torch)."""
    names = _AnyForUnknown(vars(inspect.getmodule(cls)))
    return get_type_hints(cls, globalns=dict(names), localns=names)


class _AnyForUnknown(dict[str, Any]):
    """Names of a module; one that is not there is of any type."""

    def __missing__(self, name: str) -> Any:
        if name in ("torch", "torchmetrics"):
            return _AnyAttribute()
        raise KeyError(name)


class _AnyAttribute:
    def __getattr__(self, name: str) -> Any:
        return Any if name[:1].isupper() else self


def type_fault(value: Any, hint: Any) -> str:
    """Returns why `value` is not of type `hint`, empty where it is; of a function the number of its arguments counts.

    Knows what contracts are made of: classes, `None |`, functions, `type[…]`, mappings, sets and sequences.
    """
    origin = get_origin(hint)
    if hint is Any or isinstance(hint, TypeVar):
        return ""
    if origin in (Union, types.UnionType):
        faults = [type_fault(value, one) for one in get_args(hint)]
        return "" if "" in faults else next((fault for fault in faults if "argument" in fault), faults[0])
    if hint is None or hint is types.NoneType:
        return "" if value is None else f"found {value!r}, expected None"
    if origin is Callable or hint is Callable:
        return _function_fault(value, get_args(hint))
    if origin is type:
        bound = get_args(hint)[0]
        base = bound.__bound__ if isinstance(bound, TypeVar) else bound
        fits = isinstance(value, type) and issubclass(value, base or object)
        return (
            "" if fits else f"found {_name_of(value)}, expected a class derived from {getattr(base, '__name__', base)}"
        )
    kind = origin or hint
    if isinstance(kind, type) and not _is_a(value, kind):
        return f"found {_name_of(value)}, expected {_kind_name(kind)}"
    return ""


def _is_a(value: Any, kind: type) -> bool:
    if isinstance(value, str) and kind is not str:  # a text is a sequence too, and never one that was meant
        return False
    return isinstance(value, kind) and not (isinstance(value, bool) and kind is int)


def _kind_name(kind: type) -> str:
    names: dict[Any, str] = {str: "a text", Mapping: "a mapping", AbstractSet: "a set", frozenset: "a set"}
    return names.get(kind, f"a {kind.__name__}")


def _name_of(value: Any) -> str:
    if isinstance(value, type):
        return f"class {value.__name__}"
    return f"{value!r:.60}" if isinstance(value, str | int | float | bool | types.NoneType) else type(value).__name__


def _function_fault(value: Any, arguments: tuple[Any, ...]) -> str:
    if not callable(value):
        return f"found {_name_of(value)}, expected a function"
    if not arguments or not isinstance(arguments[0], list):
        return ""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # some functions written in C have no signature
        return ""
    wanted = [getattr(kind, "__name__", str(kind)) for kind in arguments[0]]
    try:
        signature.bind(*wanted)
    except TypeError:
        return f"found a function of {tuple(signature.parameters)}, expected {len(wanted)} arguments: {wanted}"
    return ""


class Overridable:
    """A class that recipes derive from: a method that is almost called like one of the base's is refused, as BadPart.

    So is one with other arguments, and a value in the place of a method.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """Checks what the new class defines beside its bases."""
        super().__init_subclass__(**options)
        base = next((one for one in cls.__mro__[1:] if Overridable in one.__bases__), None)
        if base is None:
            return
        declared = {**dict.fromkeys(inspect.get_annotations(base)), **vars(base)}
        offered = {name: value for name, value in declared.items() if not name.startswith("_")}
        given = {**dict.fromkeys(inspect.get_annotations(cls), None), **vars(cls)}
        inherited = {name for one in cls.__mro__[1:] for name in vars(one)}
        for name, value in given.items():
            if name.startswith("_"):
                continue
            if name in offered:
                _refuse_other_kind(cls, base, name, value)
            elif name not in inherited and (near := difflib.get_close_matches(name, offered, n=1, cutoff=NEAR)):
                raise BadPart(
                    f"{cls.__name__}: {base.__name__} has no {name!r}; did you mean {near[0]!r}? "
                    "A helper of your own begins with an underscore, or has another name"
                )


def _refuse_other_kind(cls: type, base: type, name: str, value: Any) -> None:
    meant = vars(base).get(name)
    if not inspect.isfunction(meant):
        return
    if not callable(value) and not isinstance(value, staticmethod | classmethod):
        raise BadPart(f"{cls.__name__}: {name!r} is a method of {base.__name__}, found a value; write `def {name}(…)`")
    if inspect.isfunction(value):
        wanted = [one for one in inspect.signature(meant).parameters if one != "self"]
        try:
            inspect.signature(value).bind("self", *wanted)
        except TypeError:
            found = [one for one in inspect.signature(value).parameters if one != "self"]
            raise BadPart(f"{cls.__name__}: {name!r} takes {found}, expected the arguments {wanted}") from None
