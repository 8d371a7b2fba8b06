"""Writes the comments of the chart's values.yaml and the table of values in its README from values.schema.json.

    python -m lead_testing.chart_values --write

Descriptions stand in the schema alone, defaults in values.yaml alone; a house test holds the pages to both.
"""

import argparse
import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from lead_testing import PROJECT_ROOT

CHART = PROJECT_ROOT / "charts/lead"
VALUES, SCHEMA, README = CHART / "values.yaml", CHART / "values.schema.json", CHART / "README.md"
BEGIN, END = "<!-- values: begin -->\n", "<!-- values: end -->\n"
WIDTH = 116
LONGEST_FLOW = 100  # characters of a mapping or list in one line

Schema = Mapping[str, Any]


def values_page(values: Mapping[str, Any], schema: Schema) -> str:
    """Returns values.yaml: every key below its description."""
    head = (
        "# Generated comments: each is the description of its key in values.schema.json, which rejects unknown keys.\n"
    )
    return head + "\n".join(_lines(values, schema, "", top=True)) + "\n"


def values_table(values: Mapping[str, Any], schema: Schema) -> str:
    """Returns the table of the README: path, default and description of each key that has no keys of its own."""
    rows = [
        f"| `{path}` | `{json.dumps(value, ensure_ascii=False)}` | {_cell(text)} |"
        for path, value, text in _leaves(values, schema, "")
    ]
    return "\n".join(["| value | default | what it does |", "|---|---|---|", *rows]) + "\n"


def expected() -> dict[str, str]:
    """Returns what values.yaml and README.md should hold, by file name."""
    values, schema = yaml.safe_load(VALUES.read_text()), json.loads(SCHEMA.read_text())
    before, _, rest = README.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    table = BEGIN + values_table(values, schema) + END
    return {VALUES.name: values_page(values, schema), README.name: before + table + after}


def _of(schema: Schema, key: str) -> Schema:
    known: Mapping[str, Schema] = schema.get("properties", {})
    further = schema.get("additionalProperties")
    return known.get(key) or (further if isinstance(further, Mapping) else {})


def _is_section(value: Any, schema: Schema) -> bool:
    return isinstance(value, Mapping) and bool(value) and any(key in schema.get("properties", {}) for key in value)


def _lines(values: Mapping[str, Any], schema: Schema, indent: str, *, top: bool = False) -> Iterator[str]:
    for key, value in values.items():
        below = _of(schema, key)
        if top:
            yield ""
        text, mark = below.get("description", ""), f"{indent}# "
        yield from textwrap.wrap(
            text, WIDTH, initial_indent=mark, subsequent_indent=mark, break_on_hyphens=False, break_long_words=False
        )
        if _is_section(value, below) or (isinstance(value, Mapping) and len(_flow(value)) > LONGEST_FLOW):
            yield f"{indent}{key}:"
            yield from _lines(value, below, indent + "  ")
        elif isinstance(value, list) and len(_flow(value)) > LONGEST_FLOW:
            yield f"{indent}{key}:"
            yield from (f"{indent}  - {_flow(item)}" for item in value)
        else:
            yield f"{indent}{key}: {_flow(value)}"


def _flow(value: Any) -> str:
    """Returns a value as YAML in one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True, sort_keys=False)
    text = text.strip().removesuffix("...").strip()
    return '""' if text == "''" else text


def _leaves(values: Mapping[str, Any], schema: Schema, path: str) -> Iterator[tuple[str, Any, str]]:
    for key, value in values.items():
        below, here = _of(schema, key), f"{path}.{key}" if path else key
        if _is_section(value, below) or (isinstance(value, Mapping) and "properties" in below and value):
            yield from _leaves(value, below, here)
        else:
            yield here, value, below.get("description", "")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "\\<")


def main() -> None:
    """Writes both pages."""
    parser = argparse.ArgumentParser(prog="lead_testing.chart_values", description=__doc__)
    parser.add_argument("--write", action="store_true", required=True)
    parser.parse_args()
    for name, text in expected().items():
        (CHART / name).write_text(text)


if __name__ == "__main__":
    main()
