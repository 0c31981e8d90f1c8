#!/usr/bin/env bash
# gate_on_many_cores.sh WHEELS RESULTS [PYTEST ARGUMENT ...]: the gate on a machine with many cores that
# has PyTorch, Triton and Numba, but neither Jupyter nor a package index. WHEELS is a folder with what the machine lacks
# (see on_gpu.sh; here also pytest-xdist, hypothesis, psutil, beautifulsoup4, pyyaml, import-linter, rich, jinja2, packaging, pytest-reportlog).
# They are installed beside its PyTorch. RESULTS gets the log, and tests.jsonl with the seconds of each test, as soon as it ends.
# PROCESSES=48: of pytest.
set -uo pipefail
cd "$(dirname "$0")/.."
wheels=$1 results=$2
shift 2
mkdir -p "$results"
python3 -c "import nbval" 2>/dev/null ||
    python3 -m pip install -q --no-index --no-deps --no-compile --break-system-packages "$wheels"/*.whl || exit
export PYTHONUNBUFFERED=1 PYTHONPATH=$PWD
python3 -m pytest -q -p no:cacheprovider -p no:benchmark -n "${PROCESSES:-$(nproc)}" --dist loadfile --nbval-lax \
    --nbval-current-env --nbval-cell-timeout=120 --report-log "$results/tests.jsonl" "$@" >"$results/log" 2>&1
code=$?
grep -E '^(FAILED|ERROR)|passed|failed' "$results/log" | cut -c1-200
exit $code
