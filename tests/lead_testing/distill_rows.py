"""What the recipe `distill` must do, row by row; its tests are named after the rows, such as `test_d_17_…`.

A row that is kept by the engine or the operator has its tests there, under names of their own: ELSEWHERE lists them.
"""

ROWS = {
    "D-01": "one install; the guide's entry point and `lead train` parse alike, every flag with its default",
    "D-02": "`extract_frames` by its flags: five-digit names, as many as asked, a second call writes nothing",
    "D-03": "frame files: four cameras by four frames, uint8 RGB, times, no pickled object",
    "D-04": "a broken clip is listed and the others are done",
    "D-05": "`generate_teacher_labels` through an interface; the real teacher is imported on demand",
    "D-06": "label files by schema, shards i of n, a killed labelling ends like an uninterrupted one",
    "D-07": "`generate_ego_history`: 16 poses at 10 Hz that end at the origin, exact for a constant speed",
    "D-08": "`merge_shards`: the unsharded order; a missing or doubled shard is an error",
    "D-09": "`--model` must be named",
    "D-10": "110m and 500m have the guide's parameters within 2 %; a command prints them",
    "D-11": "label, frame and history files by default names; a missing history is named",
    "D-12": "`--offline`: two epochs without any picture",
    "D-13": "`--max-epochs`, `--patience`: ends after exactly that many flat epochs; survives resuming",
    "D-14": "`--batch-size` 48, `--accumulation-steps` 1; the effective batch is told",
    "D-15": "learning rate of ten epochs: warm-up 0 or 5, cosine or constant",
    "D-16": "`--ema`: exact average, used for validation, saved, resumed",
    "D-17": "position MSE, yaw as MSE of sine plus MSE of cosine, weight 0.3; each part told",
    "D-18": "weight of the reasoning warms up linearly over 20 epochs to 0.25",
    "D-19": "InfoNCE with temperature 0.07; negatives of every process as an option",
    "D-20": "`--action-weight` 0 has no term; `--grad-clip` 1.0 caps the norm",
    "D-21": "discrete actions: bins and back within half a bin, smoothed labels, refused beside `--no-unicycle`",
    "D-22": "unicycle: straight lines, circles of radius 1/curvature, gradients flow",
    "D-23": "direct mode: four numbers a step, normalised for metrics, the history still counts",
    "D-24": "64 steps at 10 Hz",
    "D-25": "`--freeze-bn`: statistics stay as they are",
    "D-26": "`--overfit-tiny` and the sample limits; four samples fall below 1 % of the first loss",
    "D-27": "`--log-action-stats`: min, mean, std and max of acceleration and curvature",
    "D-28": "`--output-dir`, `--save-every`, `--save-final-only`: the files of both ways",
    "D-29": "`--seed`, `--compile` with a fallback, `--resume`: killed anywhere, the same bits",
    "D-30": "`--num-workers`",
    "D-31": "`{model}_seed{seed}_{best,latest,epochN}.pt`, exact after six epochs",
    "D-32": "loss parts, ADE, FDE, yaw error and the early-stop count of every epoch, as text and JSON",
    "D-33": "yaw errors know that a circle closes",
    "D-34": "preset of the stabilised unicycle run",
    "D-35": "preset of the fast 110m run",
    "D-36": "preset of the reasoning run",
    "D-37": "preset of the direct run",
    "D-38": "gradient checkpointing on for 500m, off for 110m",
    "D-39": "`--benchmark` with its root; each trains; a missing root is an error",
    "D-40": "raster for nuScenes, vectors for Argoverse 2; a wrong pair is refused",
    "D-41": "1 or 6 modes with probabilities, used in training and evaluation",
    "D-42": "winner takes all, or a mixture's likelihood; gradients as they must be",
    "D-43": "nuScenes: 12 points at 2 Hz, two seconds of past, agent's frame, the challenge's JSON",
    "D-44": "Argoverse 2: 50 and 60 steps, agents and lanes in the focal frame, its parquet; no random substitutes",
    "D-45": "minADE, minFDE, MR, brier-minFDE, OffRoadRate equal those of the public kits",
    "D-46": "seeds 42, 123, 456 as runs of their own, mean and spread in the status",
    "D-47": "out of memory: smaller batches step by step; slow loading is advised",
    "D-48": "NaN: samples named, what to do; useless labels are found and left out",
    "D-49": "streamed or extracted frames through one interface; streaming is an optional import",
    "D-50": "frames, labels, history and merge as stages; pods share a build",
}

ENGINE, CLI, OPERATOR = "tests/unit/engine", "tests/unit/cli", "tests/unit/operator"
ELSEWHERE = {
    "D-13": [f"{ENGINE}/test_the_best_epoch.py::test_patience_ends_a_stage_and_is_not_forgotten_by_a_restart"],
    "D-14": [f"{ENGINE}/test_the_parts_of_a_step.py::test_seven_batches_of_four_make_two_steps_and_leave_none_out"],
    "D-16": [
        f"{ENGINE}/test_the_parts_of_a_step.py::test_the_average_of_three_updates_is_exact",
        f"{ENGINE}/test_everything_that_learns_is_resumed.py::"
        "test_a_run_stopped_at_random_steps_ends_like_an_uninterrupted_one",
    ],
    "D-20": [f"{ENGINE}/test_the_parts_of_a_step.py::test_clipping_caps_the_norm_and_tells_what_it_was"],
    "D-25": [
        f"{ENGINE}/test_the_parts_of_a_step.py::test_frozen_batch_norms_keep_their_statistics_and_skipped_steps_undo_theirs"
    ],
    "D-26": [f"{ENGINE}/test_the_best_epoch.py::test_a_few_samples_are_learned_by_heart"],
    "D-30": [
        "tests/unit/distill/test_config.py::test_d_01_every_flag_of_the_guide_has_its_default_and_reaches_its_key"
    ],
    "D-46": [
        f"{CLI}/test_seeds_rates_and_speed.py::test_one_command_trains_every_seed_and_tells_mean_and_spread",
        f"{OPERATOR}/training_run/test_what_a_run_does_next.py::test_mean_and_deviation_over_seeds_are_shown",
        f"{OPERATOR}/training_run/test_seeds_train_side_by_side.py::"
        "test_seeds_start_as_soon_as_their_parent_is_done_and_never_more_than_asked_for",
    ],
    "D-47": [
        f"{ENGINE}/test_steps_that_do_not_fit_or_are_spoiled.py::"
        "test_a_batch_that_does_not_fit_is_cut_and_the_run_goes_on",
        f"{ENGINE}/test_watch_rules.py::test_waiting_for_data_is_told",
    ],
    "D-48": [
        f"{ENGINE}/test_steps_that_do_not_fit_or_are_spoiled.py::"
        "test_the_samples_of_a_skipped_step_are_named_and_its_batch_norms_undone"
    ],
}
