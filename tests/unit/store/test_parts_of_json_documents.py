"""Parts of JSON documents are found as a parser finds them, by every Python on this machine.

The images' Python is an older 3.11 than that of most machines, and its regular expressions differ.
"""

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lead_protocol import json_slices
from lead_protocol.json_slices import JsonText

STRINGS = ("", 'a"b', "\\", "x[{", "}]", "é\n", "k" * 30, '{"a":[1]}', '\\"')


def some_value(rng: random.Random, depth: int) -> Any:
    kind = rng.random()
    if depth <= 0 or kind < 0.35:
        return rng.choice([1, -2.5, None, True, *STRINGS])
    if kind < 0.65:
        return [some_value(rng, depth - 1) for _ in range(rng.randrange(5))]
    return {f"{rng.choice(STRINGS)}{number}": some_value(rng, depth - 1) for number in range(rng.randrange(5))}


def documents(count: int) -> Iterator[str]:
    rng = random.Random(3)
    for _ in range(count):
        document = {f"k{number}": some_value(rng, 6) for number in range(3)}
        yield json.dumps(document, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, None, 1]))


def test_members_and_elements_are_those_of_a_parser() -> None:
    for text in documents(2_000):
        found = JsonText(raw := text.encode())
        spans = {json.loads(b'"' + key + b'"'): (start, end) for key, start, end in found.members()}
        assert {key: json.loads(raw[start:end]) for key, (start, end) in spans.items()} == json.loads(text)
        for start, _ in (span for span in spans.values() if raw[span[0] : span[0] + 1] == b"["):
            parts = [json.loads(raw[begin:end]) for begin, end in found.elements(start)]
            assert parts == json.JSONDecoder().raw_decode(raw[start:].decode())[0]


def test_debians_python_finds_the_same_parts(tmp_path: Path) -> None:
    other = shutil.which("python3", path="/usr/bin")
    version = "import sys; print(sys.version_info >= (3, 11))"
    if other is None or subprocess.run([other, "-c", version], capture_output=True, check=True).stdout != b"True\n":
        pytest.skip("there is no /usr/bin/python3 of 3.11 or newer, as the images of Debian 12 have")
    (tmp_path / "documents.json").write_text(json.dumps(list(documents(2_000))))
    (tmp_path / "json_slices.py").write_bytes(Path(json_slices.__file__).read_bytes())
    program = """
import json, pathlib
from json_slices import JsonText
spans = [list(map(list, ((s, e) for _, s, e in JsonText(t.encode()).members())))
         for t in json.loads(pathlib.Path("documents.json").read_text())]
print(json.dumps(spans))
"""
    done = subprocess.run([other, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{other} beside {sys.version}: {done.stderr}"
    here = [[[start, end] for _, start, end in JsonText(text.encode()).members()] for text in documents(2_000)]
    assert json.loads(done.stdout) == here
