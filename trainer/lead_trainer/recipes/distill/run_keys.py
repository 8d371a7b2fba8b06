"""Which keys of `DistillConfig` say nothing about what is learned, and which of them a cluster says in another place.

Asked by the engine through the recipe: the first when a checkpoint is resumed, the second when a pod begins.
"""

# Where files lie, what is told of the run, and how long it goes on.
NOT_LEARNED = frozenset(
    {
        "argoverse2_root", "data_root", "ego_history_dir", "frames_dir", "log_action_stats", "nuscenes_root",
        "save_every", "save_final_only", "train_labels", "val_labels",
    }
)  # fmt: skip

WEIGHTS_KEYS = frozenset({"backbone_weights"})  # in a cluster: of the store's folder `weights/`

LOCAL_KEYS = {
    "argoverse2_root": "the stage's datasets",
    "data_root": "the stage's datasets",
    "nuscenes_root": "the stage's datasets",
    "save_every": "spec.checkpoint.keepEveryEpochs",
    "save_final_only": "spec.checkpoint.keepLast and keepBest",
}
