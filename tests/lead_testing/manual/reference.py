"""The references of the manual, generated: what a field, a code, a metric, a command or a class of Python means."""

import argparse
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from pydoc import locate
from typing import Any

from lead_operator.metrics import REGISTRY
from lead_operator.resources.crd_defaults import read_schema
from lead_protocol.exit_codes import ExitClass, ExitCode, classify_exit_code
from lead_trainer.command_line import parser

KINDS = {"TrainingRun": "trainingrun", "DatasetCache": "datasetcache"}
PYTHON = {  # what people write programs with, by what it is for
    "Runs from Python": [
        "lead_client.cluster.cluster.Cluster", "lead_client.local.local.Local", "lead_client.run.Run",
        "lead_client.checkpoints.Checkpoint", "lead_client.errors.ClientError",
    ],
    "A recipe of your own": [
        "lead_trainer.contract.recipe.Recipe", "lead_trainer.contract.samples.Samples",
        "lead_trainer.contract.preparation.Preparation", "lead_trainer.contract.step.StepContext",
        "lead_trainer.contract.step.StepOutput", "lead_trainer.contract.validation.Validation",
        "lead_trainer.contract.validation.Evaluation",
    ],
}  # fmt: skip


def reference_pages() -> dict[str, str]:
    """Returns the text of each generated page by its name without `.md`."""
    fields = {f"fields-{page}": fields_page(kind) for kind, page in KINDS.items()}
    return {
        **fields,
        "exit-codes": exit_codes_page(),
        "metrics": metrics_page(),
        "commands": commands_page(),
        "python": python_page(),
    }


def fields_page(kind: str) -> str:
    """Returns every field of a kind: its path, type, default and meaning, from the CRD."""
    properties = read_schema(kind)["properties"]
    lines = [f"# Fields of {kind}", "", f"As `kubectl explain {kind.lower()}` prints them.", ""]
    for part in ("spec", "status"):
        lines += [f"## {part}", "", "| field | type | default | meaning |", "|---|---|---|---|"]
        for path, schema in _fields(properties[part], part):
            default = f"`{json.dumps(schema['default'])}`" if "default" in schema else ""
            lines.append(f"| `{path}` | {_type(schema)} | {default} | {_cell(schema.get('description', ''))} |")
        lines.append("")
    return "\n".join(lines)


def exit_codes_page() -> str:
    """Returns the exit codes of pods and of `lead`, and what the operator does after each."""
    meanings = _comments(ExitCode)
    lines = [
        "# Exit codes",
        "",
        "Of pods, and of `lead`.",
        "",
        "| code | name | meaning | class |",
        "|---|---|---|---|",
    ]
    for code in sorted(ExitCode):
        lines.append(f"| {int(code)} | {code.name} | {_cell(meanings[code.name])} | {classify_exit_code(code).value} |")
    lines += ["", "## Classes", "", "| class | what follows |", "|---|---|"]
    for name, meaning in _comments(ExitClass).items():
        lines.append(f"| {ExitClass[name].value} | {_cell(meaning)} |")
    return "\n".join([*lines, ""])


def metrics_page() -> str:
    """Returns the operator's metrics; those of runs are on the page of monitoring, which lists them with units."""
    lines = [
        "# Metrics of the operator",
        "",
        "Those of runs are listed in [Monitoring](../charts/lead/monitoring.md).",
        "",
    ]
    lines += ["| metric | kind | meaning |", "|---|---|---|"]
    for metric in sorted(REGISTRY.collect(), key=lambda each: each.name):
        suffix = "_total" if metric.type == "counter" else ""
        lines.append(f"| `{metric.name}{suffix}` | {metric.type} | {_cell(metric.documentation)} |")
    return "\n".join([*lines, ""])


def commands_page() -> str:
    """Returns the help of `lead` and of each of its commands."""
    whole = parser()
    lines = ["# Command line", "", "## lead", "", *_help(whole)]
    for name, command in _commands(whole):
        lines += [f"## lead {name}", "", *_help(command)]
    return "\n".join(lines)


def python_page() -> str:
    """Returns the public classes with their methods, from signatures and docstrings."""
    lines = ["# Python", ""]
    for title, names in PYTHON.items():
        lines += [f"## {title}", ""]
        for dotted in names:
            found = locate(dotted)
            assert isinstance(found, type), dotted
            lines += [f"### {found.__name__}", "", f"`from {found.__module__} import {found.__name__}`", ""]
            lines += [inspect.getdoc(found) or "", "", *_methods(found)]
    return "\n".join(lines)


def _methods(owner: type) -> list[str]:
    rows = []
    for name, member in inspect.getmembers(owner):
        if name.startswith("_") or name not in {n for one in owner.__mro__[:-1] for n in vars(one)}:
            continue
        if isinstance(member, property):
            rows.append((name, inspect.getdoc(member)))
        elif inspect.isfunction(member) or inspect.ismethod(member):
            rows.append((f"{name}{inspect.signature(member)}", inspect.getdoc(member)))
    if not rows:
        return []
    table = [f"| `{_plain(name)}` | {_cell(text or '')} |" for name, text in rows]
    return ["| member | meaning |", "|---|---|", *table, ""]


def _plain(signature: str) -> str:
    short = re.sub(r"(?:[a-z_]+\.)+([A-Z])", r"\1", signature.replace("self, ", "").replace("(self)", "()"))
    return short.replace("|", "or").replace("'", "").replace("->", "→")


def _comments(kind: type[Enum]) -> dict[str, str]:
    """Returns the comment behind each member of an enum."""
    found = re.findall(r"^ {4}([A-Z_]+) = [^#\n]*(?:# (.*))?$", inspect.getsource(kind), flags=re.MULTILINE)
    return {name: text or name.capitalize() for name, text in found}


def _fields(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, child in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        yield here, child
        yield from _fields(child, here)
        if isinstance(items := child.get("items"), Mapping):
            yield from _fields(items, f"{here}[]")
        if isinstance(values := child.get("additionalProperties"), Mapping):
            yield from _fields(values, f"{here}.*")


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    kind = str(schema.get("type", "any"))
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "integer" and "minimum" in schema:
        most = f" to {schema['maximum']}" if "maximum" in schema else " or more"
        return f"{schema['minimum']}{most}"
    return {"integer": "whole number", "object": "mapping", "boolean": "true or false"}.get(kind, kind)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _help(command: argparse.ArgumentParser) -> list[str]:
    return ["```text", command.format_help().rstrip(), "```", ""]


def _commands(whole: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in whole._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                inner = [*_commands(command)]
                yield from [(f"{name} {below}", each) for below, each in inner] if inner else [(name, command)]
