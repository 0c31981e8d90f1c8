#!/usr/bin/env bash
# labs_on_many_cores.sh WHEELS RESULTS: `make test LAB=NN FRESH=1` for each lab, on two cores each, eight labs at a time, on a
# machine with 16 cores (see gate_on_many_cores.sh). RESULTS/seconds gets a line for each lab, RESULTS/NN its log and tests.jsonl.
set -uo pipefail
cd "$(dirname "$0")/.."
wheels=$1 results=$2

bash benchmarks/gate_on_many_cores.sh "$wheels" "$results" --version || exit # installs what is missing, once

one() { # its place among the eight, its number
    local start=$SECONDS last
    last=$(PROCESSES=3 taskset -c "$((2 * $1)),$((2 * $1 + 1))" bash benchmarks/gate_on_many_cores.sh "$wheels" "$results/$2" --lab "$2" tests solutions | tail -1)
    echo "$2: $((SECONDS - start)) s: $last" >>"$results/seconds"
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
