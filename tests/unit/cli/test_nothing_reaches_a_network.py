"""A build and a training need no network but the store's, and ask for none, whatever their libraries would like."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lead_testing import PROJECT_ROOT

LIMIT_S = 600
WATCHED = """
import socket, sys
def watch(event, arguments):
    host = {"socket.getaddrinfo": 0, "socket.gethostbyname": 0, "socket.connect": 1, "socket.sendto": 1}.get(event)
    if host is not None:
        found = arguments[host][0] if isinstance(arguments[host], tuple) else arguments[host]
        if str(found) not in {"", "None", "localhost", "127.0.0.1", "::1", socket.gethostname()}:
            print(f"ASKED {event} {arguments!r}", file=sys.stderr, flush=True)
sys.addaudithook(watch)
from lead_trainer.cli import main
sys.exit(main(sys.argv[1:]))
"""


def without_routes() -> list[str]:
    """Returns the command that runs another in a network of its own, with a loopback and nothing else."""
    for rights in (["--net"], ["--net", "--user", "--map-root-user"]):
        command = ["unshare", *rights, "sh", "-c", 'ip link set lo up && exec "$@"', "-"]
        try:
            done = subprocess.run([*command, "ip", "route"], capture_output=True, text=True, timeout=60, check=False)
        except OSError as error:
            pytest.skip(f"no network namespace can be made: {error}")
        if done.returncode == 0:
            assert done.stdout == "", "the namespace has routes"
            return command
    pytest.skip(f"no network namespace can be made: {done.stderr.strip()}")


def lead(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
    environ |= {"PYTHONPATH": str(PROJECT_ROOT / "tests"), "HF_HOME": str(folder / "empty"), "OMP_NUM_THREADS": "1"}
    command = [*without_routes(), sys.executable, "-c", WATCHED, *words]
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def test_a_dataset_is_built_and_trained_on_without_any_network(tmp_path: Path) -> None:
    """Data, cache, two steps and a checkpoint in a network namespace with a loopback alone; no name is looked up.

    Audit: S-5
    """
    made = lead(tmp_path, "example-data", "data", "--routes", "1", "--frames", "12")
    assert made.returncode == 0, made.stderr[-2000:]
    words = ("preset=demo", "carla_root=data", "logdir=out", "epochs=1", "batch_size=2")
    done = lead(tmp_path, "train", "recipe=lead", *words)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "out/model_0000.pth").is_file()
    assert "ASKED" not in made.stderr + done.stderr, made.stderr + done.stderr


def test_a_model_of_elsewhere_is_refused_at_once_without_a_network(tmp_path: Path) -> None:
    """timm would ask huggingface.co five times for an `hf-hub:` name.

    Audit: S-5
    """
    made = lead(tmp_path, "example-data", "data", "--routes", "1", "--frames", "12")
    assert made.returncode == 0, made.stderr[-2000:]
    words = (
        "preset=demo",
        "carla_root=data",
        "logdir=out",
        "epochs=1",
        "image_architecture=hf-hub:timm/resnet34.a1_in1k",
    )
    done = lead(tmp_path, "train", "recipe=lead", *words)
    assert done.returncode == 64 and "timm has no model 'hf-hub:timm/resnet34.a1_in1k'" in done.stderr, done.stderr[
        -3000:
    ]
    assert "ASKED" not in done.stderr
