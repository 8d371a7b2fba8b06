"""What the recipe `world` must do, row by row; its tests are named after the rows, such as `test_w_17_…`.

A row that is kept by the engine has its tests there, under names of their own: ELSEWHERE lists them. DOCUMENTED are
rows without a test, and what there is instead.
"""

ROWS = {
    "W-01": "`prepare_dataset` by the guide's flags; a second run does nothing",
    "W-02": "processed layout, windows of a scene in one split",
    "W-03": "actions from the CAN bus, or from poses and flagged",
    "W-04": "`--config FILE --data-root DIR`; a word wins over a file",
    "W-05": "five config files that merge",
    "W-06": "`training`: the guide's defaults",
    "W-07": "`optimizer`: three groups with their rates, no parameter left out",
    "W-08": "`scheduler`: warm-up, then each group's own cosine to one least rate",
    "W-09": "8.5e-5 at epoch 25 of 100",
    "W-10": "`loss`: each weight 0 removes its term",
    "W-11": "`data`: a skip of two takes every second frame",
    "W-12": "`logging`: hooks at exact optimizer steps",
    "W-13": "`model`: shapes follow latent, action and hidden sizes",
    "W-14": "encoder: stages, heads, (B, T, 3, 256, 256) to (B, T, 256)",
    "W-15": "dynamics: an action changes only later latents",
    "W-16": "decoder: 16 to 256 pixels, within [-1, 1]",
    "W-17": "`model(images, actions)` gives reconstructed, predicted, latents",
    "W-18": "perceptual term from a frozen network of a file",
    "W-19": "prediction loss, later frames by their own ramp, latent consistency",
    "W-20": "latent regulariser, mean of squares",
    "W-21": "PSNR and SSIM on [0, 1], equal to torchmetrics",
    "W-22": "console block with the guide's fields",
    "W-23": "three stages by epoch share, named with what is expected",
    "W-24": "the guide's expected result",
    "W-25": "tags of scalars",
    "W-26": "pictures with the truth beside the output",
    "W-27": "histograms of weights and gradients",
    "W-28": "W&B by the guide's flags",
    "W-29": "advice: PSNR below 20 after 10 epochs, flat loss",
    "W-30": "advice: PSNR below 25 after 50 epochs, no better for 10",
    "W-31": "advice: training 2 dB above validation",
    "W-32": "advice: swinging loss, early plateau",
    "W-33": "advice: GPU below 70 %, fewer than 2 batches a second",
    "W-34": "NaN: skipped, samples named, advice",
    "W-35": "dataset NaN scan, batch viewer, output range",
    "W-36": "memory ladder with the same batch",
    "W-37": "augmentation: one draw a window, a mirror negates steering",
    "W-38": "mixed precision by key",
    "W-39": "accumulation; leftover micro-batches are stepped",
    "W-40": "`--use-dp`, torchrun with distributed.yaml",
    "W-41": "the guide's speed-ups on several GPUs",
    "W-42": "gradient checkpointing: the same gradients",
    "W-43": "learning rate finder",
    "W-44": "curriculum: thirds by difficulty, resumed in its phase",
    "W-45": "preflight: disk, driver, data, loggers",
    "W-46": "after training: report, pictures, best checkpoint, hyper-parameters",
    "W-47": "preset quick",
    "W-48": "preset best",
    "W-49": "preset memory",
    "W-50": "CARLA routes as a second source",
    "W-51": "training in a container",
    "W-52": "every command of the guide",
    "W-53": "`build_world_model`, `enable_gradient_checkpointing`, `reconstructed`",
    "W-54": "the configs tree, whose files hold the defaults",
    "W-55": "sweeps' words, the best checkpoint as an artifact",
    "W-56": "difficulty of a scene, or the user's own",
    "W-57": "memory and speed claims measured",
    "W-58": "evaluation, report and documented hyper-parameters after training",
}

ENGINE, CLI = "tests/unit/engine", "tests/unit/cli"
ELSEWHERE = {
    "W-34": [
        f"{ENGINE}/test_steps_that_do_not_fit_or_are_spoiled.py::"
        "test_the_samples_of_a_skipped_step_are_named_and_its_batch_norms_undone"
    ],
    "W-43": [f"{CLI}/test_seeds_rates_and_speed.py::test_the_sweep_of_a_run_writes_its_curve_and_commits_nothing"],
    "W-36": [
        f"{ENGINE}/test_steps_that_do_not_fit_or_are_spoiled.py::"
        "test_a_batch_that_does_not_fit_is_cut_and_the_run_goes_on"
    ],
}
DOCUMENTED = {
    "W-24": "the recipe's page says that it is not verified",
    "W-41": "the recipe's page says that it is not verified",
}
