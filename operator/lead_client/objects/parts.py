"""What the generated models inherit: the CRD's camelCase names on the outside, Python's names inside."""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


def _to_name(name: str) -> str:
    return to_camel(name.rstrip("_"))  # `from_`, because `from` is Python's


class SpecPart(BaseModel):
    """A part of what a user asks for: an unknown name or another type is an error; None means absent."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        alias_generator=_to_name, validate_by_name=True, validate_by_alias=True, defer_build=True, extra="forbid",
        strict=True, validate_assignment=True,
    )  # fmt: skip

    def document(self) -> dict[str, Any]:
        """Returns the part as the API server takes it, without what is absent."""
        given = {name: getattr(self, name) for name in type(self).model_fields}
        return {_to_name(name): _plain(value) for name, value in given.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, SpecPart):
        return value.document()
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return {key: _plain(each) for key, each in value.items()} if isinstance(value, dict) else value


class StatusPart(BaseModel):
    """A part of what the operator reports; fields of a newer operator are ignored, absent ones are None."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        alias_generator=_to_name, validate_by_name=True, validate_by_alias=True, defer_build=True, extra="ignore",
        frozen=True,
    )  # fmt: skip
