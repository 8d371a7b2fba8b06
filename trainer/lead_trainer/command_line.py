"""The command line of `lead`: each command, its options, and the function that does it, whose parameters these are."""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NoReturn

from lead_protocol import environment
from lead_protocol.exit_codes import ExitCode
from lead_trainer.local.config_sources import with_flags

DESCRIPTION = """\
Trains driving models: on this machine, or in pods that the LEAD operator starts.

train and inspect:
  train         train or resume on this machine: lead train preset=demo carla_root=DIR logdir=OUT
  config        list every key with its default, type and meaning: lead config recipe=distill preset=tiny
  runs          list the runs of a folder, or the TrainingRuns of a cluster, with their losses
  logs          print what the pods of a run log
  ui            show runs on a page: curves, pictures, checkpoints, comparisons
  tensorboard   show the curves of a logdir, or of a namespace's runs, straight from the store
  evaluate      measure a checkpoint on a benchmark beside its baselines, and write the challenge's file
  closed-loop   drive with the newest weights in a simulator, or read what it has written
  export        bundle a finished run's weights for evaluation
  lr-find       sweep the learning rate and show the loss over it
  inspect       show a batch, samples with NaN, or the range of a fresh model's outputs
  preflight     check device, disks, data and loggers before a run
  bench data    find out whether loading is the bottleneck of a run, and which step of it
  bench model   measure a step in fp32 and in half precision, with and without gradient checkpointing
  compare-perf  compare how fast two runs trained
prepare data:
  example-data  write a small generated dataset
  buckets       show which routes and frames a dataset's bucket collections hold
  cache         build the cache that training reads
maintain a store:
  fsck          check every object of a cache or a run
for the shell:
  completion    print what completes lead's commands and options: lead completion bash
for the operator:
  pod           do the job mounted in this pod
  render        print what the operator would create for a manifest
"""


# The function of each command, in `commands`, whose parameters are the options and `environ`.
FUNCTIONS = {
    "bench": "bench:bench",
    "buckets": "buckets:show_buckets",
    "closed-loop": "closed_loop:closed_loop",
    "cache": "cache:build_local_cache",
    "compare-perf": "compare_perf:compare_perf",
    "completion": "completion:print_completion",
    "config": "config:show_config",
    "evaluate": "evaluate:evaluate_checkpoint",
    "example-data": "example_data:write_example_data",
    "export": "export:export_run",
    "fsck": "fsck:check_prefix",
    "inspect": "inspect_data:inspect_data",
    "logs": "logs:show_logs",
    "lr-find": "lr_find:find_learning_rate",
    "preflight": "preflight:preflight",
    "pod": "pod:do_job",
    "render": "render:render",
    "runs": "runs:list_runs",
    "tensorboard": "tensorboard:show_curves",
    "train": "train:train_locally",
    "ui": "ui:show_page",
}
TAKE_KEYS = (
    "train",
    "cache",
    "buckets",
    "lr-find",
    "evaluate",
    "example-data",
    "inspect",
    "preflight",
)  # flags are keys too


class Parser(argparse.ArgumentParser):
    """A parser that ends in the exit code of every mistake of a user."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(ExitCode.BAD_CONFIG, f"error: {message}\n")


def parser() -> argparse.ArgumentParser:
    """Returns the parser of every command."""
    root = Parser(
        prog="lead",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="lead COMMAND …",
    )
    root.add_argument("--version", action="version", version=f"lead {own_version()}")
    commands = root.add_subparsers(
        dest="command", required=True, metavar="COMMAND", prog="lead", help=argparse.SUPPRESS
    )

    train = _command(
        commands,
        "train",
        "Train a run on this machine, or resume it; under torchrun, one process of it.",
    )
    _add_keys(train)

    buckets = _command(commands, "buckets", "Show the buckets of a dataset: lead buckets carla_root=DIR.")
    buckets.add_argument("--write", action="store_true", help="write them for LEAD too: carla_root/buckets/*.gz")
    cache = _command(
        commands,
        "cache",
        "Build the cache of a dataset: lead cache preset=demo carla_root=DIR.",
    )
    for command in (buckets, cache):
        command.add_argument("--collection", action="append", default=[], help="a bucket collection; may be repeated")
        _add_keys(command)

    example = _command(
        commands,
        "example-data",
        "Write a small generated dataset, the same for the same seed.",
    )
    example.add_argument("target", help="a folder, or a prefix below LEAD_STORE_URL, written store:PREFIX")
    example.add_argument(
        "arguments", nargs="*", metavar="key=value", help="recipe=NAME, and numbers of its tree: routes=4"
    )

    _add_commands_of_stores(commands)
    _add_commands_of_runs(commands)
    return root


def _add_commands_of_stores(commands: "argparse._SubParsersAction[Parser]") -> None:
    """Adds the commands for a store and for what runs have written there."""
    fsck = _command(commands, "fsck", "Check every object of a cache, of a run, or of a logdir.")
    fsck.add_argument("prefix", help="caches/<namespace>/<digest>, runs/<namespace>/<uid>, a logdir of lead train")
    fsck.add_argument("--store", help="s3://bucket/prefix or file:///folder (default: LEAD_STORE_URL)")

    keys = _command(commands, "config", "List every key with its default, type and meaning.")
    keys.add_argument("arguments", nargs="*", metavar="key=value", help="recipe=NAME, preset=NAME")
    keys.add_argument("--markdown", action="store_true", help="as a page in Markdown")

    runs = _command(commands, "runs", "List runs as kubectl does, with the course of the loss.")
    runs.add_argument("folder", nargs="?", type=Path, help="of runs of lead train; without it: those of a cluster")
    runs.add_argument("-n", "--namespace", default="", help="default: all namespaces")

    board = _command(
        commands,
        "tensorboard",
        "Show curves in TensorBoard: of a logdir, or of a store's runs.",
    )
    board.add_argument("logdir", nargs="?", type=Path, help="of lead train; without it: the runs of a namespace")
    board.add_argument("--logdir", dest="named", type=Path, help="the same, as TensorBoard spells it")
    board.add_argument("-n", "--namespace", default="default", help="whose runs (default: default)")
    board.add_argument("--store", help="s3://bucket/prefix or file:///folder (default: LEAD_STORE_URL)")
    board.add_argument(
        "--host", default="127.0.0.1", help="where the page is served (default 127.0.0.1; *: everywhere)"
    )
    board.add_argument("--port", type=int, default=6006)
    board.add_argument("--every", type=float, default=30.0, metavar="SECONDS", help="read interval (default 30)")

    page = _command(commands, "ui", "Show the runs in a folder on a page of this machine.")
    page.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=Path("outputs"),
        help="a logdir, or a folder of logdirs (default: outputs)",
    )
    page.add_argument("--host", default="127.0.0.1", help="where the page is served (default 127.0.0.1)")
    page.add_argument("--port", type=int, default=8400)

    logs = _command(commands, "logs", "Print what every pod of a run logs, as kubectl logs does.")
    logs.add_argument("run")
    logs.add_argument("-n", "--namespace", default="", help="default: that of the current context")
    logs.add_argument("-f", "--follow", action="store_true", help="go on as more comes")

    export = _command(
        commands,
        "export",
        "Write config.json and model_<epoch>_<seed>.pth of a finished run to a folder.",
    )
    export.add_argument("run", help="runs/<namespace>/<uid>, an address in a status (s3://…), a logdir of lead train")
    export.add_argument("folder", type=Path)
    export.add_argument("--stage", default="", help="default: the only stage, or posttrain")
    export.add_argument("--store", help="s3://bucket/prefix or file:///folder (default: LEAD_STORE_URL)")
    export.add_argument("--best", action="store_true", help="the best weights instead of the newest")


def _add_commands_of_runs(commands: "argparse._SubParsersAction[Parser]") -> None:
    """Adds what measures models and data, and what the operator starts."""
    evaluate = _command(
        commands,
        "evaluate",
        "Measure weights on a split: lead evaluate best.pt key=value.",
    )
    evaluate.add_argument("weights", type=Path, help="with the run's config.json beside them")
    evaluate.add_argument(
        "arguments", nargs="*", metavar="key=value", help="keys to change, such as argoverse2_root=DIR"
    )
    evaluate.add_argument("--split", default="val", help="val, or another that the recipe's benchmark has")
    evaluate.add_argument("--submission", type=Path, help="the file to write (default: beside the weights)")

    loop = _command(
        commands,
        "closed-loop",
        "Drive with a run's newest weights: lead closed-loop LOGDIR --command 'python drive.py'.",
    )
    loop.add_argument("logdir", nargs="?", type=Path, help="of lead train; with --command")
    loop.add_argument(
        "--command", dest="simulator", default="", help="started without a shell; gets LEAD_CLOSED_LOOP_…"
    )
    loop.add_argument("--routes", default="", help="passed on: a file or folder of routes")
    loop.add_argument("--stage", default="", help="default: that of the newest checkpoint")
    loop.add_argument("--timeout", type=float, default=86400.0, metavar="SECONDS", help="of the drive (default: a day)")
    loop.add_argument("--metric", default="driving_score", help="compared with the best before (default driving_score)")
    loop.add_argument("--max-drop", type=float, help="by how much it may be lower; ends in 1 where it is more")
    loop.add_argument("--results", type=Path, metavar="FOLDER", help="only read the results in a folder")

    finder = _command(commands, "lr-find", "Sweep the learning rate of a run: lead lr-find preset=demo carla_root=DIR "
                      "logdir=OUT. Writes OUT/lr_curve.csv and trains nothing that stays.")  # fmt: skip
    finder.add_argument("--min-lr", type=float, default=1e-6)
    finder.add_argument("--max-lr", type=float, default=1e-1)
    finder.add_argument("--steps", type=int, default=100)
    _add_keys(finder)
    inspect = _command(commands, "inspect", "Show a batch, samples that hold NaN, or the range of a model's outputs.")
    inspect.add_argument("what", choices=["batch", "nan", "range"])
    _add_keys(inspect)
    preflight = _command(commands, "preflight", "Check what a run needs: device, disks, data, loggers.")
    _add_keys(preflight)
    bench = _command(
        commands,
        "bench",
        "Is loading the bottleneck? lead bench data preset=demo carla_root=DIR. What do number format and gradient "
        "checkpointing save? lead bench model …",
    )
    bench.add_argument("what", choices=["data", "model"])
    bench.add_argument(
        "--seconds", type=float, default=5.0, help="for each stage (default 5); what is on its way then is finished"
    )
    _add_keys(bench)
    perf = _command(
        commands,
        "compare-perf",
        "Compare how fast two runs trained; ends in 1 when B is too slow.",
    )
    perf.add_argument("before", type=Path, metavar="A", help="a logdir of lead train, or a perf record of it")
    perf.add_argument("after", type=Path, metavar="B")
    perf.add_argument("--max-drop", type=float, default=0.1, help="share of A's samples a second that B may lose")

    render = _command(
        commands,
        "render",
        "Print the objects the operator would create for a manifest; needs lead-operator.",
    )
    render.add_argument("file", type=Path)

    completion = _command(commands, "completion", "Print the completion of a shell: source <(lead completion bash).")
    completion.add_argument("shell", choices=["bash", "zsh", "fish", "tcsh"])

    pod = _command(commands, "pod", "Do the job mounted in this pod; started by the operator.")
    pod.add_argument("--job", type=Path, default=Path(environment.JOB_FILE))
    pod.add_argument("--scratch", type=Path, default=Path(environment.SCRATCH_DIR))
    pod.add_argument("--session-cache", type=Path, default=Path(environment.SESSION_CACHE_DIR))
    pod.add_argument("--termination-log", type=Path, default=Path(environment.TERMINATION_LOG))


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the options of a command line; `key=value` arguments, and flags for them, may follow options."""
    takes_keys = arguments and arguments[0] in TAKE_KEYS
    options, rest = parser().parse_known_args(with_flags(arguments) if takes_keys else list(arguments))
    unknown = [argument for argument in rest if argument.startswith("-") or "=" not in argument]
    if unknown or (rest and not hasattr(options, "arguments")):
        options.usage.error(f"unrecognized arguments: {' '.join(unknown or rest)}")
    if rest:
        options.arguments += rest
    return options


def own_version() -> str:
    """Returns the version of the installed distribution; of a source tree that nobody installed it is not known."""
    try:
        return version("lead-k8s")
    except PackageNotFoundError:
        return "of a source tree"


def _command(commands: "argparse._SubParsersAction[Parser]", name: str, text: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, description=text, help=text)
    command.set_defaults(usage=command, function=f"lead_trainer.commands.{FUNCTIONS[name]}")
    return command


def _add_keys(command: argparse.ArgumentParser) -> None:
    command.add_argument("arguments", nargs="*", metavar="key=value", help="keys of the run and of its recipe")
    command.add_argument("--config", action="append", default=[], type=Path, metavar="FILE", help="a YAML file of keys")
