#!/bin/sh
# What the compiler does not check: an include that goes up a layer, a library or a private header outside its files,
# SQL outside the store, a header that does not compile alone, prints and exits below the commands, lines and files that
# grow too long.
# Calls go down: server > eval > engine > kernels; the base of engine/ is open to all above kernels/.
set -u
cd "$(dirname "$0")/.." || exit 2
failed=0
fail() {
	echo "layers: $*" >&2
	failed=1
}

base='engine/(err|log|buf|json|utf8|pystr|sha256|clock|path)\.h'

# includes FOLDER REGEX: every quoted include of the folder's files must match
includes() {
	found=$(grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "$1"/*.c "$1"/*.h "$1"/*.cu "$1"/*.cuh 2>/dev/null |
		grep -vE "\"($2)\"") && fail "$1/ must not include:
$found"
}
includes kernels 'kernels/[^"]*'
includes engine 'engine/[^"]*|kernels/kernels(_cuda)?\.h'
includes eval "eval/[^\"]*|engine/engine\\.h|$base"
includes server "server/[^\"]*|eval/(eval|wire|catalog|gate|changes)\\.h|engine/tokenizer\\.h|$base"

# only HEADER-REGEX FILES...: a header stands in these files only
only() {
	header=$1
	shift
	for f in $(grep -lE "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]($header)" \
		kernels/*.* engine/*.* eval/*.* server/*.*); do
		case " $* " in
		*" $f "*) ;;
		*) fail "$f must not include <$header>" ;;
		esac
	done
}
set -- server/http*.c
only microhttpd "$@"
only server/http_private "$@"
set -- server/store_*.c server/store_private.h
only sqlite3 "$@"
only server/store_private "$@"
only server/core_private server/core.c server/describe.c server/dispatch.c server/event.c server/score.c server/settle.c \
	server/gate_run.c server/supervise.c server/tokens.c server/view.c
only engine/tokenizer engine/*.* server/cmd_tokenize.c
only 'oneapi|dnnl' kernels/matmul_cpu.c
only cjson engine/json.c
only curl server/client.c server/fetch.c server/webhook.c
only "archive" server/unpack.c server/gzip.c
only openssl engine/sha256.c
only pcre2 engine/pattern.c engine/unicode.c
only utf8proc engine/nfc.c engine/pystr.c
set -- kernels/*.cu kernels/*.cuh kernels/*_sm90.h engine/*cuda*.[ch]
only 'cuda|cublas|mma\.h|kernels/kernels_cuda|engine/[a-z_]*cuda' "$@"

sql=$(grep -nE '"(SELECT|INSERT|UPDATE|DELETE|PRAGMA|BEGIN|COMMIT) ' server/*.c eval/*.c engine/*.c |
	grep -v '^server/store_') && fail "SQL outside server/store_*.c:
$sql"

# an error is returned; only a command prints it. (_exit is the worker's, and a forked child's.)
prints=$(grep -nE '(^|[^a-z_])(v?printf|puts|putchar|perror|exit|abort)\(|fprintf\(std' */*.c |
	grep -vE '^(tests/|server/(main|cmd|cmd_[a-z]+|client|options|progress)\.c)') && fail "prints or exits below the commands:
$prints"

for h in kernels/*.h engine/*.h eval/*.h server/*.h; do
	${CC:-cc} -std=c11 -D_GNU_SOURCE -DFATHOM_VERSION='""' -I. -Werror -Wall -fsyntax-only -x c "$h" || fail "$h does not compile alone"
done

# 120 columns (a tab is eight, a character of UTF-8 one) and 600 lines; tests/ may be longer: one suite a file
for f in kernels/*.* engine/*.* eval/*.* server/*.* tests/*.[ch]; do
	case $f in
	*.c | *.h | *.cu | *.cuh) ;;
	*) continue ;;
	esac
	wide=$(expand "$f" | LC_ALL=C awk '{ gsub(/[\200-\277]/, "") } length > 120 { print "line " NR }')
	[ -z "$wide" ] || fail "$f is wider than 120 columns:
$wide"
	case $f in tests/*) continue ;; esac
	[ "$(wc -l <"$f")" -le 600 ] || fail "$f is longer than 600 lines"
done

for top in *; do
	case $top in
	Makefile | README.md | server | engine | kernels | eval | migrations | tests | web | build) ;;
	*) fail "'$top' does not belong on the top level" ;;
	esac
done
exit $failed
