#!/usr/bin/env bash
# on_gpu.sh WHEELS RESULTS [LAB ...]: executes the solutions (all, or those of these labs) on a GPU
# machine that has PyTorch, Triton and Numba, but neither Jupyter nor a package index, and checks
# the outputs with nbval. The notebooks are in RESULTS/notebooks.tgz. WHEELS is a folder with what the machine lacks (nbval, nbclient,
# jupytext, ipykernel, ipywidgets, greenlet, cloudpickle, numpy 2.4, and what these need):
#   pip download --only-binary=:all: --python-version 3.12 ... -d WHEELS
set -uo pipefail
cd "$(dirname "$0")/.."
wheels=$1 results=$2 site=$(mktemp -d)
shift 2
chmod 755 "$site"  # for a jailed worker, which is another user
python3 -m pip install -q --no-index --no-deps --no-compile --target "$site" "$wheels"/*.whl || exit
export PYTHONPATH=$PWD:$site PATH=$site/bin:$PATH JUPYTER_PATH=$site/share/jupyter PYTHONUNBUFFERED=1
python3 -m ipykernel install --prefix "$site" >/dev/null
python3 -m common.setup.doctor
time python3 -m grading build solutions "$@" --force
notebooks=(${@/%/_*.ipynb})
notebooks=(${notebooks[@]/#/solutions/})
[ $# -gt 0 ] || notebooks=(solutions/*.ipynb)
tar -czf "$results/notebooks.tgz" "${notebooks[@]}"
COURSE_FOLDER=$(mktemp -d) python3 -m pytest -p no:cacheprovider -q --nbval-lax --nbval-current-env --nbval-cell-timeout=120 "${notebooks[@]}"
[ $# -gt 0 ] || python3 -m pytest -p no:cacheprovider -q tests/security/test_jail_gpu.py tests/labs/triton_matmul/test_matmul_gpu.py
