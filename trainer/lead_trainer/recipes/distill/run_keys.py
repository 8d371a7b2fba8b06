"""Keys of `DistillConfig` that do not affect what is learned, and those that a cluster sets in another place.

Asked by the engine through the recipe: the first when a checkpoint is resumed, the second when a pod begins.
"""

# Locations of files, reports of the run, and its length.
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
