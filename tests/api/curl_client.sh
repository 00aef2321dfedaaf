#!/usr/bin/env bash
# curl against two servers: a scripted one (argument 1) and a tiny model (2).
set -euo pipefail
scripted=$1 model=$2 n=0

expect() { # expect WHAT PATTERN TEXT
  n=$((n + 1))
  if ! grep -q -- "$2" <<<"$3"; then
    printf 'curl: %s: no "%s" in:\n%s\n' "$1" "$2" "$3" >&2
    exit 1
  fi
}
key=(-H 'Authorization: Bearer test-key')
ask='{"messages":[{"role":"user","content":"SAY[[hello]]"}]'

expect 'health needs no key' '"status":"ok"' "$(curl -sS "$scripted/health")"
expect 'ready needs no key' '"status":"ready"' "$(curl -sS "$scripted/ready")"
expect 'others do' 'HTTP/1.1 401' "$(curl -sS -i "$scripted/v1/models")"
expect 'chat' '"content":"hello"' "$(curl -sS "${key[@]}" "$scripted/v1/chat/completions" -d "$ask}")"
expect 'stream' '^data: \[DONE\]' "$(curl -sSN "${key[@]}" "$scripted/v1/chat/completions" -d "$ask,\"stream\":true}")"
expect 'HTTP/1.0 stream' '^data: \[DONE\]' \
  "$(curl -sSN0 "${key[@]}" "$scripted/v1/chat/completions" -d "$ask,\"stream\":true}")"
expect 'a chunked request' '"content":"hello"' \
  "$(curl -sS "${key[@]}" -H 'Transfer-Encoding: chunked' "$scripted/v1/chat/completions" -d "$ask}")"
expect 'not JSON' '"type":"invalid_request_error"' "$(curl -sS "$model/v1/chat/completions" -d 'hello')"
expect 'no such route' 'HTTP/1.1 404' "$(curl -sS -i "$model/v2/chat")"
expect 'wrong method' 'HTTP/1.1 405' "$(curl -sS -i -X DELETE "$model/v1/models")"
expect 'DNS rebinding' 'HTTP/1.1 403' "$(curl -sS -i -H 'Host: evil.example' "$model/v1/models")"
expect 'metrics' 'vllm:time_to_first_token_seconds_bucket' "$(curl -sS "$model/metrics")"
expect 'openapi' '"openapi":"3.1.0"' "$(curl -sS "$model/openapi.json")"
expect 'props' '"default_sampling"' "$(curl -sS "$model/props")"
expect 'tokenize' '"tokens":\[' "$(curl -sS "$model/tokenize" -d '{"content":"hello"}')"
expect 'a gzip body' '"tokens":\[' \
  "$(printf '{"content":"hello"}' | gzip | curl -sS -H 'Content-Encoding: gzip' --data-binary @- "$model/tokenize")"
expect 'absolute form' '"status":"ok"' "$(curl -sS --request-target "$model/health" "$model")"
expect 'double slashes' '"tokens":\[' "$(curl -sS "$model//tokenize" -d '{"content":"hello"}')"
expect 'a local page' 'Access-Control-Allow-Origin: http://localhost:3000' \
  "$(curl -sS -i -X OPTIONS -H 'Origin: http://localhost:3000' "$model/v1/chat/completions")"
expect 'request id' 'x-request-id: mine' "$(curl -sS -i -H 'x-request-id: mine' "$model/nowhere")"
expect 'HEAD' 'Content-Length' "$(curl -sS -I "$model/health")"
head -c 40000000 /dev/zero >"${TMPDIR:-/tmp}/zinc-large.$$"
trap 'rm -f "${TMPDIR:-/tmp}/zinc-large.$$"' EXIT
expect 'a body over the limit' 'HTTP/1.1 413' \
  "$(curl -sS -i -X POST --data-binary "@${TMPDIR:-/tmp}/zinc-large.$$" "$model/tokenize" 2>&1 || true)"
echo "curl: $n checks"
