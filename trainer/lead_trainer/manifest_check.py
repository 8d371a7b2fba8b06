"""What the recipes hold against the jobs of a manifest, before it is applied: recipe, preset, keys and types.

The jobs are read from the pods that `lead-operator render` prints, so that merged keys are those that pods get.
"""

from typing import Any

import yaml

from lead_protocol.environment import JOB_ANNOTATION
from lead_protocol.job import BuildJob, TrainJob, parse_job
from lead_trainer.contract.installed import load_recipe, near_recipe
from lead_trainer.contract.training_keys import value_at
from lead_trainer.engine.attempt.build_check import check_build
from lead_trainer.engine.attempt.config_check import check_config, check_model
from lead_trainer.engine.attempt.pod_config import refuse_places
from lead_trainer.engine.attempt.stage_config import resolve_config
from lead_trainer.errors import BadConfig, BadData, NoSuchRecipe


def faults_of_objects(text: str) -> list[str]:
    """Returns a sentence for each job among rendered objects that its recipe would refuse, in their order.

    A recipe that is not installed here may be in the cluster's image: a fault only if its name is much like another's.
    """
    jobs: dict[str, TrainJob | BuildJob] = {}
    for document in yaml.safe_load_all(text):
        annotation = _job_text(document)
        if annotation:
            job = parse_job(annotation.encode())
            if isinstance(job, TrainJob | BuildJob):
                jobs.setdefault(_name(job), job)
    return [f"{name}: {fault}" for name, job in jobs.items() if (fault := _fault(job))]


def _job_text(document: Any) -> str:
    metadata = document.get("metadata", {}) if isinstance(document, dict) else {}
    return str((metadata.get("annotations") or {}).get(JOB_ANNOTATION, ""))


def _name(job: TrainJob | BuildJob) -> str:
    if isinstance(job, BuildJob):
        return f"DatasetCache {job.owner.name}"
    return f"TrainingRun {job.owner.name}, stage {job.stage}"  # its seeds differ in nothing that is checked


def judge(job: TrainJob | BuildJob) -> None:
    """Makes all of a job that needs no data and no store; raises BadConfig or BadData where the recipe refuses it."""
    recipe = load_recipe(job.recipe)
    if isinstance(job, BuildJob):
        check_build(job, recipe)
        return
    refuse_places(job, recipe)
    config = resolve_config(recipe, job)
    check_config(recipe, config, epochs=job.epochs, ranks=job.nodes * (job.procs_per_node or 1))
    if not any(value_at(job.config, key) for key in recipe.keys.weights):  # they lie in the cluster's store
        check_model(recipe, config)


def _fault(job: TrainJob | BuildJob) -> str:
    try:
        judge(job)
    except NoSuchRecipe as error:
        return str(error) if near_recipe(job.recipe) else ""
    except (BadConfig, BadData) as error:
        return str(error)
    return ""
