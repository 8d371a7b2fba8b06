"""Faults between the real operator process and a real API server, and the oracles that judge what comes of them.

plan.py      what goes wrong: JSON, replayable
call.py      what a request is: verb, resource, whether it writes
proxy.py     stands between operator and API server and carries the plan out
answers.py   what it answers instead of the API server
journal.py   what passed
healing.py   how long the operator did not know what a fault had kept from it
kubelet.py   starts the operator again whenever it is dead
truth.py     watches every version of every object beside the operator, and judges it
workloads.py what users do meanwhile; each has one right end
trial.py     one workload under one plan: the violations found
"""
