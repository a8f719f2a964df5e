#!/bin/sh
# Installs the Debian or Ubuntu packages that a group of targets needs: deps.sh build|cuda|test|lint|demo|bench ...
# Does nothing, and needs no network, when they are there. Elsewhere it says what is missing.
set -eu

build="gcc make pkg-config python3 libc6-dev libmicrohttpd-dev libcjson-dev libsqlite3-dev libpcre2-dev libutf8proc-dev
       libcurl4-openssl-dev libarchive-dev libssl-dev libdnnl-dev libjs-chart.js"
cuda="g++" # nvcc's companion; the CUDA toolkit itself is used where it is, never installed
test="check xz-utils"
browser="chromium chromium-driver python3-selenium fonts-dejavu-core" # optional: the browser tests skip without
lint="clang-format clang-tidy cppcheck"
demo="dpkg ca-certificates"
bench="wrk curl jq"

wanted=""
optional=""
for group in "$@"; do
	case $group in
	build) wanted="$wanted $build" ;;
	cuda) wanted="$wanted $cuda" ;;
	test) wanted="$wanted $build $test" optional="$optional $browser" ;;
	lint) wanted="$wanted $build $test $lint" ;;
	demo) wanted="$wanted $build $demo" ;;
	bench) wanted="$wanted $build $bench" ;;
	*) echo "deps.sh: unknown group '$group'" >&2; exit 2 ;;
	esac
done

if ! command -v dpkg-query >/dev/null; then
	missing=""
	modules="libmicrohttpd libcjson sqlite3 libpcre2-8 libutf8proc libcurl libarchive libcrypto"
	case " $* " in *" test "*) modules="$modules check" ;; esac
	command -v pkg-config >/dev/null || missing=" pkg-config"
	for module in $modules; do
		pkg-config --exists "$module" 2>/dev/null || missing="$missing $module"
	done
	printf '#include <oneapi/dnnl/dnnl.h>\nint main(void){return 0;}\n' | ${CC:-cc} -x c - -ldnnl -o /dev/null 2>/dev/null ||
		missing="$missing oneDNN"
	[ -e "${CHARTJS:-/usr/share/javascript/chart.js/chart.min.js}" ] ||
		missing="$missing Chart.js-3 (make CHARTJS=.../chart.min.js)"
	[ -z "$missing" ] || { echo "deps: not a Debian system; please install (development files):$missing" >&2; exit 1; }
	exit 0
fi

absent() { # the packages of "$@" that are not installed
	for p in "$@"; do
		dpkg-query -W -f '${Status}\n' "$p" 2>/dev/null | grep -q '^install ok installed' || echo "$p"
	done | sort -u
}

# shellcheck disable=SC2046,SC2086
missing=$(absent $wanted)
# shellcheck disable=SC2046,SC2086
missing_optional=$(absent $optional)
[ -n "$missing$missing_optional" ] || exit 0

if [ "$(id -u)" = 0 ]; then
	sudo=""
elif command -v sudo >/dev/null; then
	sudo="sudo"
else
	[ -n "$missing" ] || exit 0
	echo "deps: please install as root: apt-get install" $missing >&2
	exit 1
fi
echo "deps: installing" $missing $missing_optional >&2
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq >&2
# shellcheck disable=SC2086
[ -z "$missing" ] || $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
for p in $missing_optional; do
	$sudo apt-get install -y -qq --no-install-recommends "$p" >/dev/null 2>&1 ||
		echo "deps: '$p' is not to be had here: the tests that need it are skipped" >&2
done
