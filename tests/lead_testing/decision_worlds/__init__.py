"""Small worlds in memory in which pods, nodes, store and operator fail in any order, for model tests of `decide`.

pods_world.py  what both share: pods, nodes, a store that comes and goes, an operator that dies after any action
run_world.py   trainers, fences, checkpoints: `RunMachine`, the model test of TrainingRun
cache_world.py build pods, shares, digests: `CacheMachine`, the model test of DatasetCache
"""
