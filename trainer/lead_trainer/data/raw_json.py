"""JSON that somebody else wrote: one kind of error, whatever is wrong with it."""

import json
from typing import Any


def raw_json(data: bytes | str) -> Any:
    """Returns a document; raises ValueError for what is no JSON, and for one that is nested too deep to be walked."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
