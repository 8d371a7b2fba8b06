"""Defaults of fields inside lists, which the parsers beside this file fill in and the API server does not.

A default that the API server writes into an entry of a list makes the stored list differ from the applied one: each
`kubectl apply` of an unchanged file then reports "configured", and a server-side apply of the same file by another
manager conflicts. The CRDs state these defaults in the fields' descriptions.
"""

from collections.abc import Mapping
from typing import Any

STAGE: Mapping[str, Any] = {"epochs": 31, "seeds": [0], "config": {}}
TOLERATION: Mapping[str, Any] = {"operator": "Equal", "value": ""}
