#!/usr/bin/env bash
# labs_on_many_cores.sh WHEELS RESULTS: `make test LAB=NN FRESH=1` for each lab, on two cores each, eight labs at a time, on a machine
# with 16 cores that has neither Jupyter nor a package index (see gate_on_many_cores.sh). RESULTS/seconds gets a line for each lab.
set -uo pipefail
cd "$(dirname "$0")/.."
wheels=$1 results=$2
python3 -c "import nbval" 2>/dev/null ||
    python3 -m pip install -q --no-index --no-deps --no-compile --break-system-packages "$wheels"/*.whl || exit
export PYTHONUNBUFFERED=1 PYTHONPATH=$PWD

one() {  # its place among the eight, its number
    local start=$SECONDS
    taskset -c "$((2 * $1)),$((2 * $1 + 1))" python3 -m pytest -q -p no:cacheprovider -p no:benchmark -n 3 --dist loadfile --nbval-lax \
        --nbval-current-env --nbval-cell-timeout=120 --report-log "$results/$2.jsonl" --lab "$2" tests solutions >"$results/$2.log" 2>&1
    echo "$2: $((SECONDS - start)) s: $(grep -E ' (passed|failed)' "$results/$2.log" | tail -1)" >>"$results/seconds"
}

for labs in "13 16 14 12 11 08 06 03" "01 02 04 05 07 09 10 15"; do
    place=0
    for lab in $labs; do
        one "$place" "$lab" &
        place=$((place + 1))
    done
    wait
done
cat "$results/seconds"
