"""What `lead_client` loads before somebody asks for more, and what it reports where an extra is not installed."""

import json
import subprocess
import sys
import tomllib

import pytest

from lead_testing import PROJECT_ROOT

HEAVY = {"torch", "numpy", "pandas", "kubernetes", "tensorboard", "minio", "rich", "IPython", "lead_trainer",
         "lead_operator", "matplotlib", "ssl", "asyncio"}  # fmt: skip
WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name.partition(".")[0])
sys.meta_path.insert(0, Absent())
import importlib.util
importlib.util.find_spec = lambda name: None if name in {absent} else Absent
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)


def test_importing_everything_public_loads_nothing_heavy() -> None:
    done = run("import sys, json; from lead_client import *; print(json.dumps(sorted(sys.modules)))")
    assert done.returncode == 0, done.stderr
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert loaded & HEAVY == set()


@pytest.mark.parametrize(
    ("absent", "call", "sentence"),
    [
        ("kubernetes", "lead_client.Cluster()", "kubernetes is not installed: pip install 'lead-k8s[client]'"),
        ("torch", "lead_client.Local('x').submit(RUN)", "torch is not installed: pip install 'lead-k8s[trainer]'"),
        ("pandas", "lead_client.Local('x').get('night').metrics()", "there is no run night"),
    ],
)
def test_a_missing_extra_is_named(absent: str, call: str, sentence: str) -> None:
    made = "RUN = lead_client.TrainingRun('night', recipe='lead', datasets=[])"
    ask = f"try:\n    {call}\nexcept lead_client.ClientError as error:\n    print(error)"
    done = run(WITHOUT.format(absent={absent}) + f"import lead_client\n{made}\n{ask}")
    assert done.returncode == 0, done.stderr
    assert sentence in done.stdout


def test_the_extra_of_the_client_is_part_of_no_image() -> None:
    extras = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert len(extras["client"]) == 2
    assert "pandas" not in "".join([*extras["operator"], *extras["trainer"]])
