"""One rank of one attempt as a process: from the mounted job to the exit code.

Started by the launcher as `python -m lead_trainer.engine.worker`, once a process. The training is `attempt.run`'s, the
same as `lead train` does without a cluster.
"""

import argparse
import os
import signal
import sys
from pathlib import Path

import structlog
import torch

from lead_protocol import environment
from lead_protocol.exit_codes import ExitCode
from lead_protocol.job import TrainJob, parse_job
from lead_protocol.job_access import job_access
from lead_protocol.progress_record import MESSAGE_CHARS, ProgressRecord
from lead_trainer.contract.installed import load_recipe
from lead_trainer.engine.attempt.location import RunLocation
from lead_trainer.engine.attempt.pod_config import refuse_places
from lead_trainer.engine.attempt.run import run_attempt, sentence
from lead_trainer.engine.group.ddp import Group, lost_peer_behind
from lead_trainer.engine.group.stop import StopFlag
from lead_trainer.engine.reporting.progress import write_termination_log
from lead_trainer.errors import BadConfig, TrainerError, exit_code_of
from lead_trainer.report.console import open_log, report_error
from lead_trainer.storage import open_store
from lead_trainer.world import World, world_of

log = structlog.get_logger(__name__)


def device_of(world: World) -> torch.device:
    """Returns this rank's GPU, or the CPU where there is none."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", world.local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def ended(error: BaseException, world: World) -> int:
    """Logs how a rank ended, with a traceback only where the program is at fault; returns the exit code."""
    error = lost_peer_behind(error, world) or error
    code = exit_code_of(error)
    if code == ExitCode.STOPPED:
        log.info(sentence(error))
    else:
        of_the_program = code == ExitCode.PROGRAM_ERROR and not isinstance(error, TrainerError)
        report_error(sentence(error), exit_code=int(code), **({"exc_info": error} if of_the_program else {}))
    return code


def main() -> None:
    """Runs the rank that the environment names, and ends the process in its exit code."""
    parser = argparse.ArgumentParser(prog="lead_trainer.engine.worker", description=__doc__)
    parser.add_argument("--job", type=Path, default=Path(environment.JOB_FILE))
    parser.add_argument("--scratch", type=Path, default=Path(environment.SCRATCH_DIR))
    parser.add_argument("--session-cache", type=Path, default=Path(environment.SESSION_CACHE_DIR))
    parser.add_argument("--termination-log", type=Path, default=Path(environment.TERMINATION_LOG))
    options = parser.parse_args()
    world, code, recipe = world_of(os.environ), int(ExitCode.DONE), ""
    open_log(rank=world.rank)  # for what goes wrong before the job is read
    stop = StopFlag()
    stop.listen_later()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until then it ends a rank as SIGTERM does, without a traceback
    try:
        job = parse_job(options.job.read_bytes())
        assert isinstance(job, TrainJob), "build jobs run in the launcher"
        recipe = job.recipe
        open_log(rank=world.rank, run=job.owner.name, stage=job.stage, seed=job.seed, attempt=job.attempt)
        location = RunLocation(
            open_store(os.environ, job_access(job)), options.scratch, options.session_cache, options.termination_log,
            removes_old_checkpoints=False,
        )  # fmt: skip
        refuse_places(job, load_recipe(job.recipe))
        group = Group(world, device_of(world))
        run_attempt(job, location, group, stop)
        group.close()
    except BaseException as error:
        code = ended(error, world)
        if not world.is_first or not options.termination_log.exists():
            write_final_report(options.termination_log, error, world, recipe)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    # A group whose peers died cannot be torn down in order: torch would wait or abort.
    os._exit(code)


def final_message(error: BaseException, world: World, recipe: str) -> str:
    """Returns the error of a rank, after its number; a config error is the same for all and names the recipe.

    At most as long as a record's message may be: a record that cannot be made would end the rank in another code.
    """
    whose = recipe if recipe and isinstance(error, BadConfig) else f"rank {world.rank}"
    return f"{whose}: {sentence(lost_peer_behind(error, world) or error)}"[:MESSAGE_CHARS]


def write_final_report(path: Path, error: BaseException, world: World, recipe: str) -> None:
    """Writes the error of a rank to `path`, for the launcher."""
    message = final_message(error, world, recipe)
    record = ProgressRecord(attempt=1, seq=0, phase="Failed", epoch=0, epochs=0, step=0, steps=0, message=message)
    write_termination_log(path, record)


if __name__ == "__main__":
    main()
