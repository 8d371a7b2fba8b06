"""The process that trains a local run: `python -m lead_client.local.worker FOLDER`, one `lead train` after another.

It outlives the notebook that began it. SIGTERM is passed on to the training process, which commits a checkpoint; called
again, the worker goes on from there. What has ended is recorded before the next stage begins.
"""

import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import yaml

from lead_client.local.folder import Ended, RunFolder, State
from lead_client.local.plan import StageRun, stage_runs
from lead_client.local.results import local_instance
from lead_client.objects.manifests import TrainingRun
from lead_protocol.exit_codes import ExitCode

_TAIL_BYTES = 65536  # of a log: the sentence with which a run ends is at its end


class Worker:
    """Trains what is left of a run."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder, self._asked = folder, False
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Trains each stage and seed that has not ended, until one fails or the worker is asked to stop."""
        record = self._folder.read()
        plan = stage_runs(TrainingRun.from_document(record["manifest"]), record["caches"], record["here"])
        signal.signal(signal.SIGTERM, self._stop)
        state = self._folder.state()
        state.suspended = False
        self._folder.write_state(state)
        for one in plan:
            if one.name in state.ended:
                continue
            if not self._asked:
                self._train(one, state, Path(record["directory"]))
            if self._asked and one.name not in state.ended:
                state.suspended = True
            self._folder.write_state(state)
            if one.name not in state.ended or state.ended[one.name].exit_code:
                break
        return 0

    def _train(self, one: StageRun, state: State, directory: Path) -> None:
        began = state.times.get(one.name, [_now()])[0]
        state.times[one.name] = [began]
        self._folder.write_state(state)
        keys = {**one.keys, "logdir": str(self._folder.logdir(one.name))}
        if one.parent:
            keys["load_file"] = str(self._weights(one))
        self._folder.keys(one.name).write_text(yaml.safe_dump(keys), encoding="utf-8")
        launcher = ["torch.distributed.run", "--nproc-per-node", str(one.processes), "-m"] if one.processes > 1 else []
        train = ["lead_trainer", "train", "--config", str(self._folder.keys(one.name))]
        with self._folder.log(one.name).open("ab") as log:
            command = [sys.executable, "-m", *launcher, *train]
            process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=directory)
            self._process = process
            if self._asked:  # while it was started
                process.terminate()
            code = process.wait()
        if code != ExitCode.STOPPED:
            state.ended[one.name] = Ended(code, "" if code == 0 else self._last_sentence(one.name, code))
        state.times[one.name] = [began, _now()]

    def _weights(self, one: StageRun) -> Path:
        """Returns the final weights of the stage before, in a folder of their own with their config beside them."""
        from lead_client.checkpoints import checkpoints_of

        target, parent = self._folder.initial_weights(one.name), self._folder.logdir(one.parent)
        instance = local_instance(parent, *_split(one.parent))
        newest = checkpoints_of(instance)[0] if instance is not None else None
        assert newest is not None, "a stage that has ended has a checkpoint"
        path = target / newest.weights_name
        if not path.exists():
            newest.download(target, weights_only=True)
        return path

    def _last_sentence(self, instance: str, code: int) -> str:
        """Returns the sentence with which a training process ended, from the end of its log."""
        with self._folder.log(instance).open("rb") as log:
            log.seek(max(0, log.seek(0, 2) - _TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        named = f"a signal ended it: {signal.Signals(-code).name}" if code < 0 else f"it ended with exit code {code}"
        return errors[-1] if errors else next((line for line in reversed(lines) if line.strip()), named)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()


def _split(instance: str) -> tuple[str, int]:
    stage, _, seed = instance.rpartition("-s")
    return stage, int(seed)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def main(folder: Path) -> int:
    """Trains the run of a folder unless another worker does; returns the exit status."""
    run = RunFolder(folder)
    lock = run.lock()
    return 0 if lock is None else Worker(run).run()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
