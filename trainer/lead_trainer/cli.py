"""The command `lead`: reads the command line, calls the function of the command, and ends in its exit code.

A user reads one sentence, a traceback is for program errors only. Commands are imported when they run, because the
parent of a pod's workers must not load torch.
"""

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from inspect import signature
from pkgutil import resolve_name

from lead_protocol import environment
from lead_protocol.exit_codes import ExitCode
from lead_protocol.store.object_store import StoreDenied, StoreError
from lead_trainer.command_line import parsed
from lead_trainer.cpu_limit import limit_threads
from lead_trainer.errors import TrainerError, exit_code_of, missing_extra
from lead_trainer.offline import stay_offline
from lead_trainer.terminal_text import printable

# The modules of the extra `trainer`, without which runs, logs, render, fsck and export work all the same.
OF_TRAINER = frozenset({"torch", "timm", "numpy", "safetensors", "wandb", "scipy", "cv2", "simplejpeg", "laspy", "lz4",
                        "xxhash", "diskcache", "pyarrow", "rich", "torchmetrics", "PIL", "shapely",
                        "pyproj", "pynvml"})  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the command line, runs it, and returns the exit code."""
    options = parsed(sys.argv[1:] if arguments is None else arguments)
    stay_offline(os.environ)
    if options.command != "pod":  # which shares its cores among the processes that it starts
        limit_threads(os.environ)
    try:
        if options.command == "train":
            _refuse_mistakes(options)
        function, given = resolve_name(options.function), {**vars(options), "environ": os.environ}
        code = function(**{name: given[name] for name in signature(function).parameters})
        return code if isinstance(code, int) else ExitCode.DONE
    except KeyboardInterrupt:
        return 130
    except (TrainerError, StoreError) as error:
        code = exit_code_of(error)
        _report(options, error, code)
        return _end(options, code)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name in OF_TRAINER:
            print(f"error: lead {options.command} needs more: {missing_extra(error.name)}", file=sys.stderr)
            return ExitCode.BAD_CONFIG
        if options.command == "train":
            return _end(options, _reported_by_worker(error))
        if options.command == "pod":
            from lead_trainer.report.console import report_error

            report_error(f"{type(error).__name__}: {error}", exit_code=int(ExitCode.PROGRAM_ERROR), exc_info=error)
        else:
            traceback.print_exception(error)
        return ExitCode.PROGRAM_ERROR


def _refuse_mistakes(options: argparse.Namespace) -> None:
    """Raises BadConfig for what is wrong with a run, before torch is loaded."""
    from lead_trainer.local.run import local_run

    local_run(options.arguments, options.config, os.environ)


def _report(options: argparse.Namespace, error: TrainerError | StoreError, code: int) -> None:
    """Writes how a command ended: a line of the log in a pod, a sentence for a person elsewhere."""
    if options.command == "pod":
        from lead_trainer.report.console import report_error

        report_error(_sentence(options, error), exit_code=int(code))
    else:
        text = printable(_sentence(options, error))
        print(f"{'' if code == ExitCode.STOPPED else 'error: '}{text}", file=sys.stderr)


def _sentence(options: argparse.Namespace, error: TrainerError | StoreError) -> str:
    if not isinstance(error, StoreDenied):
        return str(error)
    from lead_trainer.store_rights import refused

    named = getattr(options, "store", None)
    return refused(options.command, error, {**os.environ, **({environment.STORE_URL: named} if named else {})})


def _reported_by_worker(error: Exception) -> int:
    from lead_trainer.engine.worker import ended
    from lead_trainer.world import world_of

    return ended(error, world_of(os.environ))


def _end(options: argparse.Namespace, code: int) -> int:
    if options.command == "train" and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        sys.stderr.flush()
        os._exit(code)  # a group that lost a rank cannot be torn down in order
    return code
