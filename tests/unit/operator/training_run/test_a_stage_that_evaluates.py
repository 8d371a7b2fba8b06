"""A stage of kind Evaluation in the operator: what it takes over from the stage that it measures, and its job."""

from lead_operator.objects.training_pod import build_check_job, build_train_job
from lead_operator.resources.training_run import StageInstance
from lead_protocol.job import DatasetSource, InitFrom
from lead_testing.makers import DIGEST, PROFILE, a_training_run

RUN = a_training_run(
    config={"batch_size": 4, "data": {"size": 64}},
    stages=[
        {"name": "train", "epochs": 9, "seeds": [3, 5], "config": {"lr": 0.1, "data": {"split": "a"}}},
        {"name": "test", "kind": "Evaluation", "initFrom": {"stage": "train"}, "config": {"data": {"split": "b"}}},
    ],
)
KEYS = {"lr": 0.1, "data": {"split": "b"}}


def test_an_evaluation_has_epochs_seeds_and_keys_of_the_stage_that_it_measures() -> None:
    train, test = RUN.stages
    assert (train.evaluates, test.evaluates) == (False, True)
    assert (test.epochs, test.seeds) == (9, (3, 5))
    assert RUN.keys_of(test) == KEYS and RUN.keys_of(train) == {"lr": 0.1, "data": {"split": "a"}}
    assert [stage.config for stage in build_check_job(RUN).stages] == [RUN.keys_of(train), KEYS]


def test_its_job_names_the_weights_of_its_own_seed_and_trains_nothing() -> None:
    sources = {"towns": DatasetSource(name="towns", digest=DIGEST)}
    job = build_train_job(RUN, StageInstance(RUN.stages[1], 5), attempt=1, datasets=sources, profile=PROFILE)
    assert (job.evaluates, job.seed, job.epochs) == (True, 5, 9)
    assert job.config == {"batch_size": 4, "lr": 0.1, "data": {"size": 64, "split": "b"}}
    prefix = f"runs/team-a/{RUN.identity.uid}/train-s5/manifest/"
    assert job.init_from == InitFrom(manifests_prefix=prefix)


def test_an_evaluation_alone_measures_a_checkpoint_of_another_run() -> None:
    uri = f"s3://lead/runs/team-a/{'0' * 8}-0000-4000-8000-{'0' * 12}/train-s0/"
    run = a_training_run(stages=[{"name": "test", "kind": "Evaluation", "initFrom": {"uri": uri}, "epochs": 12}])
    assert (run.stages[0].evaluates, run.stages[0].epochs, run.stages[0].init_uri) == (True, 12, uri)
