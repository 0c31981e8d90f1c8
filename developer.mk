# The commands for developers of the course; the Makefile includes this file.
RUN_TEST = $(RUN) --test
PYTEST = -m pytest -n auto --maxprocesses 8 --dist loadfile --nbval-lax --nbval-current-env --nbval-cell-timeout=600

TESTS ?= tests solutions
ONE_LAB = $(if $(filter file,$(origin LAB)),,--lab '$(LAB)')
NEW = $(if $(FRESH),,--new)

test:  ## run what is fast, what depends on a change, and a sample; or all of one lab: make test LAB=02 (FRESH=1: also what passed)
	$(RUN_TEST) $(PYTEST) $(if $(ONE_LAB),$(ONE_LAB) $(NEW),--sample) $(TESTS)

test-all:  ## run everything: every test, every known answer, every notebook
	$(RUN_TEST) $(PYTEST) $(ONE_LAB) $(TESTS)

seeds: export COURSE_ALL_SEEDS = 1
seeds:  ## try each known answer with all of its 20 seeds, of which the other targets try three: make seeds LAB=12
	$(RUN_TEST) $(PYTEST) $(ONE_LAB) tests/labs/test_labs.py -k 'known_wrong_answer or right_answer'

oldest:  ## run everything with the oldest versions that pyproject.toml admits, in build/oldest (needs uv)
	uv --no-config venv -q --allow-existing --python $(PYTHON) build/oldest
	uv --no-config pip install -q --python build/oldest/bin/python --resolution lowest-direct -e '.[test,site]'
	PATH="$(CURDIR)/build/oldest/bin:$$PATH" build/oldest/bin/python $(PYTEST) $(ONE_LAB) $(TESTS)

lint:  ## check the form of the code: ruff, its formatter, types
	$(RUN_TEST) -m ruff check .
	$(RUN_TEST) -m ruff format --check .
	$(RUN_TEST) -m pyrefly check

format:  ## format the code as `make lint` expects it
	$(RUN_TEST) -m ruff check --fix .
	$(RUN_TEST) -m ruff format .

labs:  ## build labs/*.ipynb; make labs LAB=01 FORCE=1 starts one lab afresh and keeps a copy of your work
	$(RUN_TEST) -m grading build labs $(if $(filter file,$(origin LAB)),,'$(LAB)') $(if $(FORCE),--force)

solutions:  ## execute the solution notebooks whose source changed (FORCE=1: all)
	$(RUN_TEST) -m grading build solutions $(if $(FORCE),--force)

release:  ## make what students get, in build/release, and prove that it holds no solution
	$(RUN) -m grading release

docs:  ## renew the tables and the map in README.md and docs/
	$(RUN_TEST) docs/generate.py

site:  ## make the course's site, in build/site (COURSE_ADDRESS=https://github.com/...: its launch links)
	$(RUN_TEST) -m book

picture:  ## renew the README's picture of an exercise (needs Chromium)
	$(RUN_TEST) docs/exercise.py

mutants:  ## change a solution in many ways: which do the checks catch? make mutants LAB=02
	$(RUN_TEST) -m grading mutants '$(LAB)'

bench:  ## on a GPU: the labs' kernels compared with cuBLAS, PyTorch and torch.compile
	$(RUN_TEST) benchmarks/kernels.py
	$(RUN_TEST) benchmarks/sweeps.py

bench-fusion:  ## on a GPU: the kernels that lab 08 emits compared with torch.compile
	$(RUN_TEST) -m benchmarks.fusion

bench-memory:  ## on a GPU: training under a cap on memory, and a fused block
	$(RUN_TEST) benchmarks/memory.py

bench-gpus:  ## on several GPUs: the labs' parallelism compared with NCCL's and PyTorch's
	$(RUN_TEST) benchmarks/multi_gpu.py

bench-labs:  ## seconds, memory and size of each solved lab
	$(RUN_TEST) benchmarks/labs.py

bench-grading:  ## seconds to grade 20 submissions, compared with nbgrader
	$(RUN_TEST) benchmarks/grading_speed.py

bench-page:  ## what a student waits for: make lab, first cells, checks, widgets, grading
	$(RUN_TEST) benchmarks/page.py

lock:  ## pin again what pyproject.toml allows (needs uv; keeps the pins that still fit)
	uv pip compile -q --universal --python-version 3.11 --extra test --extra site --no-annotate --custom-compile-command "make lock (it pins what pyproject.toml admits; its CUDA libraries are PyTorch's own to pin)" \
		pyproject.toml -o requirements.lock

.PHONY: test test-all seeds oldest lint format docs site picture labs solutions release mutants bench bench-fusion bench-memory bench-gpus bench-labs bench-grading bench-page lock
