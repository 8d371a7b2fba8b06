"""What the recipe `nuplan` must do, row by row; its tests are named after the rows, such as `test_n_42_…`.

A row that is kept by the engine has its tests there, under names of their own: ELSEWHERE lists them.
"""

ROWS = {
    "N-01": "perception and prediction trained together; four losses logged",
    "N-02": "raw data, bundles, batches, encoders and heads, losses, optimizer and checkpoint",
    "N-03": "ingest: six cameras, a lidar, poses, boxes, map, futures",
    "N-04": "the rig is config: channels and rings",
    "N-05": "`SensorBundle`, versioned, refused by the field's name",
    "N-06": "bundles stored or made on the fly, the same",
    "N-07": "heavy parts are cached; a second epoch reads no raw file",
    "N-08": "windows of length and stride within a scene",
    "N-09": "split by log, each city on both sides, seeded",
    "N-10": "960x540, or 640x384; intrinsics scaled alike",
    "N-11": "lenses are undistorted",
    "N-12": "pictures normalised by the training set",
    "N-13": "light augmentation; a mirror changes everything",
    "N-14": "pillars of 0.2 m, intensity, dropout of points",
    "N-15": "one grid of 200x200 cells of 0.5 m for both sensors",
    "N-16": "lines of sight computed once a calibration",
    "N-17": "augmentation by keys; validation without chance",
    "N-18": "shared image network, lift-splat, pillars, fusion, four heads",
    "N-19": "detection: focal and L1",
    "N-20": "map: cross-entropy and dice",
    "N-21": "occupancy: cross-entropy of known cells",
    "N-22": "ways: ADE, FDE, Gaussian likelihood of the best mode",
    "N-23": "task weights, fixed or learned",
    "N-24": "imitation of the expert, off by default",
    "N-25": "half precision with a scaled loss",
    "N-26": "gradient accumulation",
    "N-27": "AdamW; cosine or step",
    "N-28": "batches of 2 to 4, else a warning",
    "N-29": "samples of like length together",
    "N-30": "4 to 8 workers, prefetch 2, pinned",
    "N-31": "throughput recorded, a gate for regressions",
    "N-32": "weights of the image network from a file",
    "N-33": "a checkpoint names config, code, data, seed; resume",
    "N-34": "every N epochs or on better validation; the best K",
    "N-35": "validation before each checkpoint of an epoch",
    "N-36": "closed loop with the newest checkpoint, by hand or every N epochs",
    "N-37": "artefacts of a closed loop are kept",
    "N-38": "a dataset has a manifest with a hash",
    "N-39": "layout of data and results",
    "N-40": "metrics of every step",
    "N-41": "evaluation report",
    "N-42": "detection mAP",
    "N-43": "mIoU of the map",
    "N-44": "occupancy accuracy and recall",
    "N-45": "ADE and FDE",
    "N-46": "miss rate at 2 m",
    "N-47": "mode recall and precision",
    "N-48": "collision rate",
    "N-49": "closed loop: completion, infractions, comfort",
    "N-50": "the same validation in training and afterwards",
    "N-51": "YAML and arguments; near matches",
    "N-52": "seeds and determinism",
    "N-53": "verification of a dataset; conversion; training",
    "N-54": "several processes: the same weights and metrics",
    "N-55": "shards hold each frame once",
    "N-56": "sized for one GPU of 24 GB",
    "N-57": "outputs for planners in a fixed form",
    "N-58": "a file of weights alone gives the logged numbers",
    "N-59": "success rate of closed loops",
    "N-60": "weights of the image network from the store",
    "N-61": "calibrations stored once a log",
}

ENGINE, CLI = "tests/unit/engine", "tests/unit/cli"
ELSEWHERE = {
    "N-31": [
        f"{CLI}/test_seeds_rates_and_speed.py::test_a_run_leaves_a_record_that_can_be_compared_with_itself",
        f"{CLI}/test_seeds_rates_and_speed.py::test_a_slower_run_ends_the_comparison_in_one",
    ],
    "N-34": [
        f"{ENGINE}/test_which_checkpoints_stay.py::test_a_run_of_six_epochs_leaves_exactly_what_its_policy_says",
        f"{ENGINE}/test_which_checkpoints_stay.py::test_a_better_epoch_is_saved_although_none_is_due",
    ],
    "N-35": [
        f"{ENGINE}/test_the_best_epoch.py::"
        "test_the_validation_of_a_checkpoint_is_that_of_its_weights_over_the_whole_split"
    ],
    "N-37": [
        "tests/unit/closed_loop/test_driving_on_this_machine.py::"
        "test_n_36_results_lie_below_the_epoch_and_a_second_call_drives_nothing"
    ],
    "N-52": [
        f"{ENGINE}/test_everything_that_learns_is_resumed.py::"
        "test_a_run_stopped_at_random_steps_ends_like_an_uninterrupted_one"
    ],
}
