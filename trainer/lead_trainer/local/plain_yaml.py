"""YAML of a user's: plain values, each key once, and no more of them than a config may hold.

An alias is one value in several places. Written out, a few hundred bytes of aliases of aliases are more values than any
machine holds, and an alias within its own value never ends; so values are counted as if they were written out.
"""

from typing import Any

import yaml

MERGE = "tag:yaml.org,2002:merge"  # of the key `<<`, whose mapping's keys are taken over
MAX_VALUES, MAX_LEVELS = 65_536, 32  # as of a `config` in a manifest: 64 KiB, 32 levels


class _Plain(yaml.SafeLoader):
    """Refuses a key that stands twice in a mapping, of which YAML would keep the last, and what is too large."""

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        if node is not None and _extent(node, {})[0] > MAX_VALUES:
            raise yaml.YAMLError(f"it holds more than {MAX_VALUES:,} values once its aliases are written out")
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != MERGE]
        if twice := [key for number, key in enumerate(keys) if key in keys[:number]]:
            raise yaml.YAMLError(f"the key {twice[0]!r} stands twice")
        return super().construct_mapping(node, deep)


def plain_yaml(text: str) -> Any:
    """Returns the value that a text holds; raises yaml.YAMLError for one that is no YAML, too large or too deep."""
    try:
        return yaml.load(text, Loader=_Plain)
    except RecursionError:
        raise _too_deep() from None


def _extent(node: yaml.Node, known: dict[int, tuple[int, int]], above: int = 0) -> tuple[int, int]:
    """Returns how many values a node holds written out, and its levels; a node that is met again costs nothing."""
    if above >= MAX_LEVELS:
        raise _too_deep()
    if id(node) not in known:
        children: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            children = node.value
        elif isinstance(node, yaml.MappingNode):
            children = [child for pair in node.value for child in pair]
        extents = [_extent(child, known, above + 1) for child in children]
        known[id(node)] = (
            1 + sum(values for values, _ in extents),
            1 + max((levels for _, levels in extents), default=0),
        )
    values, levels = known[id(node)]
    if above + levels > MAX_LEVELS:
        raise _too_deep()
    return values, levels


def _too_deep() -> yaml.YAMLError:
    return yaml.YAMLError(f"it is nested more than {MAX_LEVELS} levels deep, or an alias lies within its own value")
