# One line each: what a command does is documented in the module it runs.
PYTHON ?= python3
RUN = PYTHONPATH=tests $(PYTHON) -m

help: ; @sed -n 's/^#: /  make /p' $(firstword $(MAKEFILE_LIST))

#: demo             a real Kubernetes here, the chart, example data and a training; repeat it at will
#: test             every test: unit, chart, API server, cluster
#: lint             style, types, layers and pages
#: venv             the environment that tests run in, below .venv
#: images           build and push the images, and print their names
#: lock             resolve the dependencies again, with their hashes
#: cluster-up       the cluster of the demo and the tests alone; cluster-status, cluster-down
#: manual           the pages and references as one site with search, in outputs/manual
#: parity           compare with values measured on public implementations
#: bench-operator   how fast the operator is; ARGS=--help
#: campaign         faults and hostile inputs by the thousand; ARGS=--help
#: mutations        whether the tests notice changed code; ARGS=--help

.PHONY: help demo test venv lint images lock cluster-up cluster-down cluster-status manual parity bench-operator campaign mutations

demo: ; @$(RUN) lead_testing.demo
test: ; @$(RUN) lead_testing.rings
venv: ; @$(RUN) lead_testing.rings --only-venv
lint: ; @$(RUN) lead_testing.rings house
lock: venv ; @PYTHONPATH=tests .venv/bin/python -m lead_testing.locks $(ARGS)
images: ; @$(RUN) lead_testing.local_cluster images
cluster-up: ; @$(RUN) lead_testing.local_cluster up
cluster-down: ; @$(RUN) lead_testing.local_cluster down
cluster-status: ; @$(RUN) lead_testing.local_cluster status
manual: venv ; @PYTHONPATH=tests .venv/bin/python -m lead_testing.manual.build $(ARGS)
# Kernels that every x86-64 machine has: with wider ones sums are rounded otherwise.
parity: venv ; @ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 .venv/bin/python tests/bench/parity.py
bench-operator: venv ; @PYTHONPATH=tests .venv/bin/python -m bench.operator $(ARGS)
campaign: venv ; @PYTHONPATH=tests .venv/bin/python -m campaign $(ARGS)
mutations: venv ; @PYTHONPATH=tests .venv/bin/python -m campaign.mutations $(ARGS)
