"""Keys of `LeadConfig` that do not affect what is learned, and those that a cluster sets in another place.

Asked by the engine through the recipe: the first when a checkpoint is resumed, the second when a pod begins.
"""

# Locations of files, reports of the run, and its length; also those of `config.json` that follow from them.
NOT_LEARNED = frozenset(
    {
        "carla_data", "carla_root", "continue_failed_training", "description", "epoch_checkpoints_keep", "id",
        "log_wandb", "navsim_data_root", "visualize_training", "wandb_id", "wandb_project_name", "wandb_resume",
        "waymo_e2e_training_data_root",
    }
)  # fmt: skip

LOCAL_KEYS = {
    "carla_root": "the stage's datasets",
    "epoch_checkpoints_keep": "spec.checkpoint.keepLast and keepBest",
    "navsim_data_root": "the stage's datasets",
    "waymo_e2e_training_data_root": "the stage's datasets",
}

WEIGHTS_KEYS = frozenset({"backbone_weights"})  # in a cluster: of the store's folder `weights/`
