#!/bin/sh
# How fast HTTP answers while a worker computes: wrk's 99th percentile of /healthz, a job's page and the list of jobs, beside
# their figures on an idle server. The bar: 20 ms while a job runs. Needs wrk, curl and jq.
#
#   tests/bench_http.sh [seconds a measurement]
set -eu

cd "$(dirname "$0")/.."
fathom=${FATHOM:-build/fathom}
seconds=${1:-5}
folder=$(mktemp -d)
server=

finish() {
	[ -z "$server" ] || kill "$server"
	[ -z "$server" ] || wait "$server" || true
	rm -rf "$folder"
}
trap finish EXIT INT TERM

# A book that takes minutes.
mkdir -p "$folder/datasets/long"
awk 'BEGIN { srand(1); split("the of and to a in that it was he for on is with as his had but not at", w, " ")
	for (i = 0; i < 1500000; i++) printf "%s%s", w[int(rand() * 20) + 1], i % 15 == 14 ? ".\n" : " " }' \
	> "$folder/datasets/long/book.txt"

"$fathom" serve --listen 127.0.0.1:0 --data "$folder/data" --models eval/demo --datasets "$folder/datasets" \
	2> "$folder/log" &
server=$!
for _ in $(seq 100); do
	url=$(sed -n 's/.*listening on \(http.*\)/\1/p' "$folder/log")
	[ -z "$url" ] || break
	sleep 0.1
done

measure() { # label, path
	wrk -t1 -c8 -d"${seconds}s" --latency "$url$2" |
		awk -v label="$1" -v path="$2" '/ 50%/ { p50 = $2 } / 99%/ { p99 = $2 } /Requests\/sec/ { rate = $2 }
			/Non-2xx|Socket errors/ { bad = bad " " $0 }
			END { printf "%-8s %-28s p50 %8s  p99 %8s  %8.0f requests/s%s\n", label, path, p50, p99, rate, bad }'
}

measure_all() {
	measure "$1" /healthz
	measure "$1" /api/v1/jobs/1
	measure "$1" "/api/v1/jobs?limit=50"
	measure "$1" /
}

submit() { # lengths: prints the job's number
	curl -sf "$url/api/v1/jobs" -H 'Content-Type: application/json' \
		-d "{\"model\":\"rope-demo\",\"task\":\"pg19\",\"dataset\":\"long\",\"params\":{\"lengths\":[$1]}}" | jq .id
}

first=$(submit 256)
"$fathom" cancel --server "$url" "$first" > "$folder/out"
curl -sf "$url/api/v1/jobs/$first?wait=60" > "$folder/out"
measure_all idle
for i in $(seq 49); do
	submit 64 > "$folder/out"
done
job=$(submit 128,256,512,1024)
while [ "$(curl -sf "$url/api/v1/jobs?state=running" | jq '.data | length')" = 0 ]; do
	sleep 0.1
done
measure_all running
curl -sf "$url/api/v1/jobs?state=running" | jq -r '.data[] | "job \(.id): \(.progress.done) of \(.progress.total) tokens, still running"'
