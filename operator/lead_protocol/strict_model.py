"""The base of every document that crosses the border between operator, pods and bucket."""

from typing import ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError


class StrictModel(BaseModel):
    """A frozen pydantic model that refuses unknown keys, coercions, NaN and infinities."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, ser_json_inf_nan="constants"
    )


Document = TypeVar("Document", bound=StrictModel)


def parse_or_none(model: type[Document], data: bytes, max_bytes: int) -> Document | None:
    """Returns the document in `data`, or None where it is not a valid one of at most `max_bytes`.

    Keys that only a newer release knows are passed over.
    """
    if len(data) > max_bytes:
        return None
    try:
        return model.model_validate_json(data, extra="ignore")
    except ValidationError:
        return None
