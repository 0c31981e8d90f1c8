PYTHON ?= python3
LAB ?= 01
PORT ?= 8888
RUN = @$(PYTHON) common/setup/environment.py
RUN_TEST = $(RUN) --test
TESTS = tests solutions
PYTEST = -m pytest -n auto --maxprocesses 8 --dist loadfile --nbval-lax --nbval-current-env --nbval-cell-timeout=120

help:  ## this list
	@awk -F ':  ## ' '/^[a-z]/ {printf "  make %-15s %s\n", $$1, $$2}' Makefile

lab:  ## open JupyterLab on a lab: make lab LAB=02 PORT=8889
	$(RUN) -m common.setup.jupyter '$(LAB)' --port '$(PORT)'

grade:  ## grade your own lab: make grade LAB=02
	$(RUN) -m grading '$(LAB)'

doctor:  ## what this machine has and lacks, and the line that mends it
	$(RUN) -m common.setup.doctor

test:  ## run all the tests, the solutions' notebooks among them
	$(RUN_TEST) $(PYTEST) $(TESTS)

lint:  ## the form of the code: ruff, its formatter, types
	$(RUN_TEST) -m ruff check .
	$(RUN_TEST) -m ruff format --check .
	$(RUN_TEST) -m pyrefly check

format:  ## lay out the code as the gate wants it
	$(RUN_TEST) -m ruff check --fix .
	$(RUN_TEST) -m ruff format .

labs:  ## build labs/*.ipynb from solutions/*.py (FORCE=1: also over work, which is kept aside)
	$(RUN_TEST) -m grading.source.build labs $(if $(FORCE),--force)

solutions:  ## execute the solution notebooks whose source changed (FORCE=1: all)
	$(RUN_TEST) -m grading.source.build solutions $(if $(FORCE),--force)

release:  ## build what students get, in build/release: no solutions, proved
	$(RUN) -m grading.source.release

mutants:  ## mutate a solution: how many mutants do the checks catch? make mutants LAB=02
	$(RUN_TEST) -m grading.mutants '$(LAB)'

docs:  ## renew the tables and the map in README.md and docs/
	$(RUN_TEST) docs/generate.py

picture:  ## renew the README's picture of an exercise (needs Chromium)
	$(RUN_TEST) docs/exercise.py

bench:  ## on a GPU: the labs' kernels against cuBLAS, PyTorch and torch.compile
	$(RUN_TEST) benchmarks/kernels.py

bench-gpus:  ## on several GPUs: the labs' parallelism beside NCCL's and PyTorch's
	$(RUN_TEST) benchmarks/multi_gpu.py

bench-labs:  ## seconds, memory and size of each solved lab
	$(RUN_TEST) benchmarks/labs.py

bench-grading:  ## grading 20 submissions, against nbgrader
	$(RUN_TEST) benchmarks/grading_speed.py

lock:  ## pin anew what pyproject.toml admits (needs uv; keeps the pins that still fit)
	uv pip compile -q --universal --python-version 3.11 --extra test --no-annotate --custom-compile-command "make lock (it pins what pyproject.toml admits; its CUDA libraries are PyTorch's own to pin)" \
		pyproject.toml -o requirements.lock

.PHONY: help lab grade doctor test lint format docs picture labs solutions release mutants bench bench-gpus bench-labs bench-grading lock
