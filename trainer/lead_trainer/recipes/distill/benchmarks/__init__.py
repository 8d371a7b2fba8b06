"""The public forecasting benchmarks as modes of the recipe `distill`: Argoverse 2 (vectors) and nuScenes (rasters).

One folder per benchmark, with the same modules: `preparation` (raw tree to records), `dataset` (records to samples),
`encoder` (a batch to tokens), `submission` (forecasts to the challenge's file), and the readers of its raw files.
`baselines` and `evaluation` serve both.
"""
