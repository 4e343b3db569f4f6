#!/bin/sh
# The kernel compiled with gcc's address and undefined-behaviour sanitizers, under its own tests and spoilt runs.
# `tests/fuzz/sanitize.sh PYTHON`. A read or write outside of a buffer, or an undefined shift, ends the run.
set -eu
python=$1
compiler="gcc -fsanitize=address,undefined -fno-sanitize-recover=all -g -O1 -fno-omit-frame-pointer"
runtime=$(gcc -print-file-name=libasan.so)
if [ ! -e "$runtime" ]; then
    echo "gcc's sanitizers are not installed (libasan): install gcc whole, or leave this out." >&2
    exit 1
fi
cache=build/sanitized-kernel
mkdir -p "$cache" && chmod 700 "$cache"
# Python's own memory is not freed at its end, and its small objects would hide what lies beside them.
export CC="$compiler" RUNBOARD_KERNEL_CACHE="$cache" LD_PRELOAD="$runtime" PYTHONMALLOC=malloc
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
export RUNBOARD_FUZZ_CASES="${RUNBOARD_FUZZ_CASES:-300}"
# pytrec_eval, against which others of the tests compare, is compiled code too, and does not get through itself.
exec "$python" -m pytest -q -p no:cacheprovider --capture=sys -k "not pytrec_eval" \
    tests/evaluation/kernel/test_kernel.py tests/evaluation/runs/test_problems.py tests/evaluation/runs/test_scores.py \
    "tests/evaluation/core/test_hostile_bytes.py::test_any_bytes_end_in_a_verdict[runs]" \
    "tests/evaluation/core/test_hostile_bytes.py::test_any_run_ends_in_a_verdict"
