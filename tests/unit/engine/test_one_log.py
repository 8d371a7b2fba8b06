"""Every line of a process that a machine reads is JSON with the fields of its run, whoever wrote it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lead_protocol.exit_codes import ExitCode
from lead_testing.toy_jobs import a_toy_job, run_pod

OPENED = """
import logging, threading, warnings
import structlog, torch

own = logging.getLogger("own_handler")
own.addHandler(logging.StreamHandler())
own.propagate = False

from lead_trainer.report.console import open_log

open_log(rank={rank}, json_lines={json_lines}, run="night", attempt=2)
"""

FROM_EVERYWHERE = """
structlog.get_logger("lead_trainer.x").warning("from structlog", folder="f")
thread = threading.Thread(target=lambda: structlog.get_logger().warning("from a thread"))
thread.start()
thread.join()
of_torch = ("torch", "torch._dynamo", "torch.distributed")
for name in ("urllib3.connectionpool", "minio", "asyncio", *of_torch, "own_handler"):
    logging.getLogger(name).warning("from %s", name)
warnings.warn("from warnings")
try:
    raise ValueError("of\\ntwo lines")
except ValueError:
    logging.getLogger("lead_protocol.store.s3").exception("with a traceback")
"""

FROM_FORKED_PROCESSES = """
import numpy as np

from lead_trainer.data.build_workers import encode_all
from lead_trainer.data.process_loader import ProcessLoader
from lead_trainer.contract.samples import Samples
from lead_trainer.recipes.lead.dataset_collate import collate


class Numbers(Samples):
    def __len__(self):
        return 4

    def epoch_draw(self, epoch):
        return np.arange(4)

    def name(self, index):
        return str(index)

    def load(self, index, epoch):
        structlog.get_logger().warning("loading", sample=index)
        logging.getLogger("urllib3").warning("loading by a library")
        return {"index": index}


def encoded(number):
    structlog.get_logger().warning("encoding", sample=number)
    logging.getLogger("urllib3").warning("encoding by a library")
    return number, b""


if __name__ == "__main__":
    assert len(list(ProcessLoader(Numbers(), collate, batch_size=2, seed=1, threads=2).batches(0))) == 2
    assert len(list(encode_all(range(4), encoded, str, threads=1, processes=2))) == 4
"""


def written_by(program: str, folder: Path, rank: int = 0, *, json_lines: bool = True) -> list[str]:
    """Returns what a process wrote to standard error, by lines."""
    script = folder / "program.py"
    script.write_text(OPENED.format(rank=rank, json_lines=json_lines) + program)
    plain = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run([sys.executable, str(script)], env=plain, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and not done.stdout, done.stderr
    return done.stderr.splitlines()


def fields_of(lines: list[str]) -> list[dict[str, Any]]:
    """Returns the lines' fields; each has a time, a level, a logger, and those of its run."""
    read = [json.loads(line) for line in lines]
    assert all({"timestamp", "level", "logger", "event", "run", "rank", "attempt"} <= line.keys() for line in read)
    return read


@pytest.mark.parametrize("rank", [0, 3])
def test_lines_of_threads_and_libraries_are_json_with_the_runs_fields(rank: int, tmp_path: Path) -> None:
    lines = fields_of(written_by(FROM_EVERYWHERE, tmp_path, rank))
    assert {(line["run"], line["rank"], line["attempt"], line["level"]) for line in lines[:-1]} == {
        ("night", rank, 2, "warning")
    }
    events = [line["event"] for line in lines]
    assert events[:3] == ["from structlog", "from a thread", "from urllib3.connectionpool"]
    assert [event for event in events if "from torch" in event] == [
        "from torch",
        "from torch._dynamo",
        "from torch.distributed",
    ]
    assert events.count("from own_handler") == 1 and "UserWarning: from warnings" in events[-2]
    assert lines[-1]["level"] == "error" and "ValueError: of\ntwo lines" in lines[-1]["exception"]


def test_forked_loader_and_build_processes_log_like_their_parent(tmp_path: Path) -> None:
    lines = fields_of(written_by(FROM_FORKED_PROCESSES, tmp_path, 1))
    assert {(line["run"], line["rank"], line["attempt"]) for line in lines} == {("night", 1, 2)}
    ours = [(line["event"], line["sample"]) for line in lines if "sample" in line]
    assert sorted(ours) == [(event, sample) for event in ("encoding", "loading") for sample in range(4)]
    theirs = sorted(line["event"] for line in lines if line["logger"] == "urllib3")
    assert theirs == ["encoding by a library"] * 4 + ["loading by a library"] * 4


def test_the_first_rank_logs_news_and_the_others_warnings(tmp_path: Path) -> None:
    news = 'structlog.get_logger().info("ours")\nlogging.getLogger("lead_other.recipe").info("theirs")\n'
    assert [line["event"] for line in fields_of(written_by(news, tmp_path, 0))] == ["ours", "theirs"]
    assert written_by(news, tmp_path, 1) == []


def test_people_read_lines_of_libraries_as_they_read_ours(tmp_path: Path) -> None:
    lines = written_by(FROM_EVERYWHERE, tmp_path, json_lines=False)
    assert [line for line in lines if line.endswith("[warning] from structlog folder=f")]
    assert [line for line in lines if line.endswith("[warning] from minio")]
    assert not [line for line in lines if line.startswith("{") or "attempt=" in line or "rank=" in line]


def test_every_line_of_a_pod_is_json_with_run_rank_and_attempt(tmp_path: Path) -> None:
    done = run_pod(tmp_path / "pod", tmp_path / "store", a_toy_job(7, epochs=1, processes=2))
    assert done.returncode == 0, done.stderr
    lines = fields_of(done.stderr.splitlines())
    assert {(line["run"], line["attempt"], line["stage"]) for line in lines} == {("toy", 7, "train")}
    assert "epoch done" in [line["event"] for line in lines if line["rank"] == 0]


def test_the_end_of_a_pod_that_fails_is_a_line_of_json_too(tmp_path: Path) -> None:
    refused = run_pod(tmp_path / "pod", tmp_path / "store", a_toy_job(config={"lr": "fast"}))
    assert refused.returncode == ExitCode.BAD_CONFIG
    (line,) = fields_of(refused.stderr.splitlines())
    assert (line["level"], line["exit_code"]) == ("error", 64) and line["event"].startswith("lr: found 'fast'")
