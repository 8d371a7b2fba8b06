"""`lead render`: what the operator would create for a manifest, by its own program; this package never imports it."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from lead_protocol.exit_codes import ExitCode
from lead_trainer.errors import missing_extra
from lead_trainer.programs import program


def render(file: Path) -> int:
    """Prints what `lead-operator render` makes of a manifest, then what its recipes hold against the keys of each job.

    Returns the exit code of either; keys are checked where the recipes are installed.
    """
    operator = program("lead-operator", "it is in the operator's image, and in lead-k8s[operator]")
    done = subprocess.run([operator, "render", os.fspath(file)], stdout=subprocess.PIPE, text=True)
    sys.stdout.write(done.stdout)
    if done.returncode:
        return done.returncode
    if find_spec("torch") is None:
        print(f"keys are not checked: {missing_extra('torch')}", file=sys.stderr)
        return ExitCode.DONE
    from lead_trainer.manifest_check import faults_of_objects

    faults = faults_of_objects(done.stdout)
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    return ExitCode.BAD_CONFIG if faults else ExitCode.DONE
