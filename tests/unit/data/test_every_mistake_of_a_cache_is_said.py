"""A DatasetCache with several mistakes names them all at once, in its pod and in `lead render`."""

from pathlib import Path
from typing import Any

import pytest

from lead_protocol.job import BuildJob, OwnerIdentity, StoreSource
from lead_protocol.progress_record import BuildRecord
from lead_trainer.building import run_build_job
from lead_trainer.contract.installed import load_recipe
from lead_trainer.engine.attempt.build_check import check_build
from lead_trainer.errors import BadConfig
from lead_trainer.manifest_check import judge


def a_job(recipe: str = "lead", **spec: Any) -> BuildJob:
    fields: dict[str, Any] = {"collections": ["full_pretrain"], "config": {}} | spec
    return BuildJob(
        owner=OwnerIdentity(namespace="team-a", name="town", uid="u-1"), generation=1, attempt=1, index=0,
        parallelism=1, recipe=recipe, source=StoreSource(prefix="datasets/town"), **fields,
    )  # fmt: skip


def said(job: BuildJob) -> str:
    with pytest.raises(BadConfig) as refused:
        check_build(job, load_recipe(job.recipe))
    with pytest.raises(BadConfig, match=r".") as judged:
        judge(job)
    assert str(judged.value) == str(refused.value)
    return str(refused.value)


def test_a_wrong_key_and_a_wrong_collection_are_said_at_once() -> None:
    text = said(a_job(config={"image_widht": 3, "lr": "fast"}, collections=["full_pretrian", "faild"]))
    for part in (
        "image_widht: unknown key",
        "lr: found 'fast'",
        "full_pretrian",
        "did you mean full_pretrain",
        "faild",
    ):
        assert part in text
    assert text.count("image_widht") == 1


def test_a_wrong_stage_and_every_place_are_said_with_the_rest() -> None:
    stages = ["labels"]
    text = said(
        a_job("distill", collections=["trian"], config={"teacher": "/etc/passwd", "labels": "~/x"}, stages=stages)
    )
    for part in (
        "teacher: found '/etc/passwd'",
        "labels: found '~/x'",
        "collections: found 'trian'; did you mean train",
    ):
        assert part in text


def test_a_sound_spec_is_accepted() -> None:
    check_build(a_job(), load_recipe("lead"))
    check_build(a_job("distill", collections=["train", "val"]), load_recipe("distill"))
    check_build(
        a_job("distill", collections=["train_val"], config={"benchmark": "nuscenes", "input_type": "raster"}),
        load_recipe("distill"),
    )


def test_a_build_pod_leaves_all_of_it_as_its_last_word(tmp_path: Path) -> None:
    job = a_job(config={"image_widht": 3}, collections=["full_pretrian"])
    store = {"LEAD_STORE_URL": (tmp_path / "store").as_uri()}
    with pytest.raises(BadConfig):
        run_build_job(job, tmp_path / "termination-log", store)
    record = BuildRecord.model_validate_json((tmp_path / "termination-log").read_text())
    assert "image_widht" in record.message and "full_pretrian" in record.message
