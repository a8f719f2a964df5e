#!/bin/sh
# The CUDA kernels under compute-sanitizer: sanitize_gpu.sh CHECK_ALL [SUITE ...]
#
# Every tool watches the small case of the gpu_engine suite (tag "sanitize"), which goes through every kernel as the engine
# calls it; memcheck then also watches the named kernel suites whole. A tool that runs into its time limit is told, and
# is a failure only where it found something before. Exit status 1: something was found. SANITIZE_TOOLS: these tools only;
# SANITIZE_SECONDS: the limit of each.
set -u

check_all=$1
shift
sanitizer=${SANITIZER:-$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)}
limit=${SANITIZE_SECONDS:-60}
found=0

watch() { # tool, words, environment...
	tool=$1
	words=$2
	shift 2
	log=$(mktemp)
	start=$(date +%s)
	env CK_FORK=no "$@" timeout "$limit" "$sanitizer" --tool "$tool" --error-exitcode 99 --print-limit 20 \
		"$check_all" >"$log" 2>&1
	rc=$?
	seconds=$(($(date +%s) - start))
	case $rc in
	0) echo "$tool, $words: clean ($seconds s)" ;;
	124)
		echo "$tool, $words: stopped after $limit s"
		! grep -qE '=========.*(Invalid|Race|Uninitialized|Barrier|hazard)' "$log" || found=1
		;;
	*) echo "$tool, $words: FOUND (status $rc, $seconds s)"; found=1 ;;
	esac
	[ $rc = 0 ] || grep -E '=========|Error|FAIL|:[EF]:|%' "$log" | head -60
	rm -f "$log"
}

if [ ! -x "$sanitizer" ]; then
	echo "SKIP: no compute-sanitizer (CUDA Toolkit)"
	exit 0
fi
for tool in ${SANITIZE_TOOLS:-memcheck initcheck synccheck racecheck}; do
	watch "$tool" "the engine's small case" CK_INCLUDE_TAGS=sanitize
done
for suite in "$@"; do
	watch memcheck "suite $suite" CK_RUN_SUITE="$suite" CK_INCLUDE_TAGS=gpu
done
exit $found
