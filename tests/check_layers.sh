#!/bin/sh
# Fails on an include that goes up a layer, on a library used outside its file, and on headers that do not compile alone.
# kernels < engine < eval < server; engine/'s base (err, log, buf, json, utf8, sha256) is open to all above kernels.
set -u
cd "$(dirname "$0")/.." || exit 2
failed=0
fail() {
	echo "layers: $*" >&2
	failed=1
}

# upward NAME-OF-FOLDER REGEX-OF-FORBIDDEN-INCLUDES
upward() {
	found=$(grep -nE "^#include \"($2)" "$1"/*.c "$1"/*.h "$1"/*.cu 2>/dev/null) && fail "$1/ must not include:
$found"
}
upward kernels 'engine/|eval/|server/|tests/'
upward engine 'eval/|server/|tests/|kernels/[^k]'
upward eval 'kernels/|server/|tests/|engine/(backend|safetensors|pool)'
upward server 'kernels/|tests/|engine/(backend|safetensors|pool|session|position)'

# only HEADER-REGEX FILES...: a library's header stands in these files only
only() {
	header=$1
	shift
	for f in $(grep -lE "^#include <($header)" kernels/*.* engine/*.* eval/*.* server/*.* 2>/dev/null); do
		case " $* " in
		*" $f "*) ;;
		*) fail "$f must not include <$header>" ;;
		esac
	done
}
# shellcheck disable=SC2046
only microhttpd $(ls server/http*.c 2>/dev/null)
# shellcheck disable=SC2046
only sqlite3 $(ls server/store_*.c server/store_*.h 2>/dev/null)
only 'oneapi|dnnl' kernels/matmul_cpu.c
only cjson engine/json.c
only curl server/client.c
only openssl engine/sha256.c
# shellcheck disable=SC2046
only 'cuda|cublas' $(ls kernels/*.cu engine/backend_cuda.c 2>/dev/null)

sql=$(grep -nE '"(SELECT|INSERT|UPDATE|DELETE|PRAGMA|BEGIN|COMMIT) ' server/*.c eval/*.c engine/*.c 2>/dev/null |
	grep -v '^server/store_') && fail "SQL outside server/store_*.c:
$sql"

for h in kernels/*.h engine/*.h eval/*.h server/*.h; do
	[ -e "$h" ] || continue
	${CC:-cc} -std=c11 -D_GNU_SOURCE -DFATHOM_VERSION='""' -I. -Werror -Wall -fsyntax-only -x c "$h" || fail "$h does not compile alone"
done

for top in *; do
	case $top in
	Makefile | README.md | server | engine | kernels | eval | migrations | tests | web | build) ;;
	*) fail "'$top' does not belong on the top level" ;;
	esac
done
exit $failed
