#!/usr/bin/env bash
# Starts a server of the built-in model, asks for two equal greedy completions and one refused request, and stops it.
#   smoke.sh QUIRE       QUIRE: the program
# Prints what is wrong and exits 1 then. Needs nothing but bash.
set -euo pipefail
quire=$1
log=$(mktemp)
"$quire" serve builtin-small --port 0 2>"$log" </dev/null &
server=$!
trap 'kill -KILL $server 2>/dev/null || true; rm -f "$log"' EXIT

die() {
    echo "smoke: $*"
    cat "$log"
    exit 1
}

port=
for _ in $(seq 6000); do
    port=$(sed -nE 's,.*listening on http://[^ ]*:([0-9]+).*,\1,p' "$log" | head -n 1)
    [ -z "$port" ] || break
    kill -0 "$server" 2>/dev/null || die "the server ended"
    sleep 0.05
done
[ -n "$port" ] || die "the server is not listening after 300 s"

# ask METHOD PATH [BODY]: the response, head and body. It fails where nobody reads all of it.
ask() {
    local body=${3:-}
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf '%s %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s' \
        "$1" "$2" "${#body}" "$body" >&3
    timeout 300 cat <&3
    exec 3<&-
}

request='{"model": "builtin-small", "prompt": "The prince looked", "max_tokens": 16, "temperature": 0, "ignore_eos": true}'
text() { sed -nE 's/.*"text": ?("([^"\\]|\\.)*").*/\1/p'; }
first=$(ask POST /v1/completions "$request" | text)
[ -n "$first" ] || die "no completion"
[ "$(ask POST /v1/completions "$request" | text)" = "$first" ] || die "a second greedy completion is another one"
refused=$(ask POST /v1/completions '{')
[[ $refused == "HTTP/1.1 400 "* ]] || die "half a request is not refused"
metrics=$(ask GET /metrics)
grep -q '^vllm:request_success_total' <<<"$metrics" || die "no metrics"
kill -TERM "$server"
status=0
wait "$server" || status=$?
[ "$status" -eq 0 ] || die "the server ended with status $status"
