"""The bench's own environment, made on demand: what our competitors need must not become a need of the project."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "outputs" / "bench-venv"
THEIRS = ("litdata==0.2.76", "mosaicml-streaming==0.13.0", "webdataset==1.0.2")
# In our environment's versions.
SHARED = ("torch", "opencv-python-headless", "simplejpeg", "lz4", "xxhash", "diskcache")
OTHER = ("numpy<2.2", "matplotlib>=3.10,<4")  # mosaicml-streaming asks for the old numpy; the picture is drawn here


def bench_python() -> Path:
    """Returns the environment's interpreter; makes it with uv where it is missing or of other versions."""
    python = FOLDER / "bin" / "python"
    done = FOLDER / "complete"
    same = [f"{name}=={importlib.metadata.version(name).partition('+')[0]}" for name in SHARED]
    wanted = "\n".join([*THEIRS, *same, *OTHER])
    if not done.exists() or done.read_text() != wanted:
        uv = Path(sys.executable).with_name("uv")
        subprocess.run([uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, FOLDER], check=True)
        subprocess.run([uv, "pip", "install", "--quiet", "--python", python, *THEIRS, *same, *OTHER], check=True)
        done.write_text(wanted)
    return python


def environment(**more: str) -> dict[str, str]:
    """Returns the variables of every measured process."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "tests"), "OMP_NUM_THREADS": "1", **more}
