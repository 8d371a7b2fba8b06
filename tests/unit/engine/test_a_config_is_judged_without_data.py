"""What a check pod does: it judges every stage by the recipe, leaves its answer and ends with that code."""

from pathlib import Path
from typing import Any

import pytest

from lead_protocol.check_record import parse_check
from lead_protocol.environment import STORE_URL
from lead_protocol.exit_codes import ExitCode
from lead_protocol.job import CheckedStage, CheckJob, OwnerIdentity
from lead_trainer.cli import main


def judged(folder: Path, **fields: Any) -> tuple[int, str]:
    """Runs the pod's command on a job, and returns its exit code and what it leaves, empty where it accepts."""
    values: dict[str, Any] = {
        "owner": OwnerIdentity(namespace="team-a", name="drive", uid="u"), "recipe": "lead", "preset": "demo",
        "nodes": 2, "procs_per_node": 1, "stages": [CheckedStage(stage="train", epochs=2)],
    }  # fmt: skip
    (folder / "job.json").write_text(CheckJob(**(values | fields)).model_dump_json())
    code = main(["pod", "--job", f"{folder}/job.json", "--termination-log", f"{folder}/word"])
    record = parse_check((folder / "word").read_bytes())
    assert record is not None and record.accepted == (code == 0)
    return code, record.message


@pytest.fixture(autouse=True)
def without_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STORE_URL, raising=False)


def test_a_right_configuration_is_accepted_without_store_and_data(tmp_path: Path) -> None:
    assert judged(tmp_path) == (ExitCode.DONE, "")


@pytest.mark.parametrize(
    ("fields", "code", "said"),
    [
        ({"config": {"batchsize": 4}}, ExitCode.BAD_CONFIG, "did you mean batch_size"),
        ({"config": {"batch_size": "many"}}, ExitCode.BAD_CONFIG, "batch_size: found 'many'"),
        ({"config": {"batch_size": 5}}, ExitCode.BAD_CONFIG, "expected a multiple of the 2 processes"),
        ({"config": {"batch_size": 4, "canonical_nodes": 3}}, ExitCode.BAD_CONFIG, "expected a divisor of batch_size"),
        ({"config": {"image_architecture": "resnet35"}}, ExitCode.BAD_CONFIG, "timm has no model 'resnet35'"),
        ({"preset": "dem"}, ExitCode.BAD_CONFIG, "did you mean demo"),
        ({"recipe": "led"}, ExitCode.NO_SUCH_RECIPE, "did you mean 'lead'?"),
        ({"config": {"load_file": "store:weights/a"}}, ExitCode.BAD_CONFIG, "in a cluster the stage's initFrom"),
    ],
)
def test_a_wrong_one_is_refused_in_the_recipes_words(
    tmp_path: Path, fields: dict[str, Any], code: ExitCode, said: str
) -> None:
    found, message = judged(tmp_path, **fields)
    assert found == code and said in message


def test_each_stage_is_judged_with_its_own_keys_and_a_shared_mistake_is_told_once(tmp_path: Path) -> None:
    stages = [CheckedStage(stage="a", epochs=2), CheckedStage(stage="b", epochs=2, config={"batchsize": 4})]
    assert judged(tmp_path, stages=stages)[1].startswith("stage b: batchsize")
    alike = [stage.model_copy(update={"config": {}}) for stage in stages]
    _, both = judged(tmp_path, stages=alike, config={"batch_size": "many"})
    assert both.startswith("stage a: batch_size: found 'many'") and "stage b" not in both
