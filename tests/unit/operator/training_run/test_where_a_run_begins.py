"""`initFrom.uri` and `checkpoint.from`: an address out of a status is what the pods are told, or a clear refusal."""

from typing import Any

import pytest

from lead_operator.errors import SpecError
from lead_operator.objects.training_pod import build_train_job
from lead_operator.resources.training_run import StageInstance, TrainingRun
from lead_protocol.job import DatasetSource, InitFrom, TrainJob
from lead_protocol.object_keys import InstanceKeys
from lead_testing.makers import DIGEST, PROFILE, a_training_run

OTHER = InstanceKeys("team-a", "6a1b8f04-0000-4000-8000-0000000000ff", "pretrain", 3)
NEWEST = InitFrom(manifests_prefix=OTHER.manifests_prefix)
NAMED = InitFrom(manifests_prefix=OTHER.manifests_prefix, checkpoint_prefix=OTHER.checkpoint(1200, 2, "abc123"))
STAGES = [{"name": "one"}, {"name": "two"}]


def job(run: TrainingRun, instance: StageInstance | None = None) -> TrainJob:
    first = instance or run.instances[0]
    return build_train_job(
        run, first, attempt=1, datasets={"towns": DatasetSource(name="towns", digest=DIGEST)}, profile=PROFILE
    )


def a_run_from(uri: str, **spec: Any) -> TrainingRun:
    return a_training_run(checkpoint={"from": uri}, **spec)


def test_the_address_of_a_checkpoint_is_that_very_one_and_of_a_stage_the_newest() -> None:
    for uri, wanted in [
        (PROFILE.uri(NAMED.checkpoint_prefix), NAMED),
        (PROFILE.uri(NAMED.checkpoint_prefix).rstrip("/"), NAMED),
        (PROFILE.uri(OTHER.prefix), NEWEST),
    ]:
        assert job(a_run_from(uri)).resume_from == wanted
        begun = a_training_run(stages=[{"name": "tune", "initFrom": {"uri": uri}}])
        assert (job(begun).init_from, job(begun).resume_from) == (wanted, None)


def test_only_the_first_stage_goes_on_from_another_run() -> None:
    run = a_run_from(PROFILE.uri(OTHER.prefix), stages=STAGES)
    assert [job(run, instance).resume_from for instance in run.instances] == [NEWEST, None]


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("s3://other/runs/team-a/6a1b/one-s0/", "expected an address below s3://lead/"),
        ("s3://lead/runs/team-b/6a1b/one-s0/", "names a checkpoint of namespace 'team-b'"),
        ("s3://lead/runs/team-a/../team-b/6a1b/one-s0/", "copy it from status.stages[].checkpoint.uri"),
        ("s3://lead/datasets/towns", "copy it from status.stages[].checkpoint.uri"),
        ("s3://lead/runs/team-a/6a1b/one-s0/checkpoints/12/1-x", "copy it from status.stages[].checkpoint.uri"),
    ],
)
def test_an_address_that_is_none_or_of_somebody_else_is_refused_with_the_remedy(uri: str, said: str) -> None:
    with pytest.raises(SpecError, match=r"TrainingRun team-a/night-drive: checkpoint.from") as error:
        job(a_run_from(uri))
    assert said in str(error.value)
