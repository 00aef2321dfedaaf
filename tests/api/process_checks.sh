#!/usr/bin/env bash
# `zinc serve` as a process: startup errors, TLS, and shutdown.  process_checks.sh ZINC MODEL FOLDER
set -euo pipefail
zinc=$1 model=$2 folder=$3/process n=0
mkdir -p "$folder"
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null || true' EXIT

fails() { # fails PATTERN ARGUMENTS...: expects exit code 1 and PATTERN on standard error
  local pattern=$1 code=0
  shift
  n=$((n + 1))
  timeout 90 "$zinc" serve "$@" >"$folder/out" 2>"$folder/err" || code=$?
  if [ $code -ne 1 ] || ! grep -q -- "$pattern" "$folder/err"; then
    echo "zinc serve $*: exit code $code, expected 1 with '$pattern':" >&2
    cat "$folder/err" >&2
    exit 1
  fi
}

start() { # sets pid and url
  : >"$folder/out"
  "$zinc" serve "$model" --port 0 "$@" >"$folder/out" 2>"$folder/err" &
  pid=$!
  for _ in $(seq 1200); do
    url=$(sed -n 's/^listening on //p' "$folder/out")
    [ -z "$url" ] || return 0
    sleep 0.05
  done
  cat "$folder/err" >&2
  exit 1
}

ends_well() { # after a signal: exit code 0
  local code=0
  n=$((n + 1))
  wait "$pid" || code=$?
  pid=
  [ $code -eq 0 ] || { echo "zinc serve ended with $code: $1" >&2 && exit 1; }
}

fails 'without --api-key' "$model" --host 0.0.0.0 --port 0
fails 'is not an IP address' "$model" --host example.com --api-key k
fails 'two models are named' "$model" "$model" --port 0
fails 'must be given together' "$model" --port 0 --tls-cert "$model"
fails 'cannot read a PEM certificate chain' "$model" --port 0 --tls-cert "$model" --tls-key "$model"
fails 'cannot be read' "$model" --port 0 --api-key-file "$folder/nowhere"
fails 'GGUF' "$0" --port 0

start
curl -sS "$url/health" >/dev/null
kill -TERM "$pid"
ends_well 'idle'

# A response in progress at the signal is finished; new connections are refused.
start
curl -sSN "$url/v1/completions" -d '{"prompt":"once","max_tokens":900,"ignore_eos":true,"stream":true}' >"$folder/stream" &
reader=$!
for _ in $(seq 3000); do
  ! grep -q 'data:' "$folder/stream" || break
  sleep 0.02
done
kill -TERM "$pid"
wait "$reader"
ends_well 'in the middle of a stream'
n=$((n + 1))
grep -q '^data: \[DONE\]' "$folder/stream" || { echo 'a stream was cut by SIGTERM' >&2 && exit 1; }

# The prefix cache survives a restart.
rm -f "$folder"/*.cache
question='{"prompt":"It was a bright cold day in April, and the clocks were striking thirteen.","max_tokens":1}'
for expected in '"cached_tokens":0' '"cached_tokens":[1-9]'; do
  start --cache-folder "$folder"
  n=$((n + 1))
  answer=$(curl -sS "$url/v1/completions" -d "$question")
  grep -q "$expected" <<<"$answer" || { echo "no $expected after a restart: $answer" >&2 && exit 1; }
  kill -TERM "$pid"
  ends_well 'with a cache folder'
done

if command -v openssl >/dev/null; then
  openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext 'subjectAltName=IP:127.0.0.1' \
    -keyout "$folder/key.pem" -out "$folder/cert.pem" 2>/dev/null
  start --tls-cert "$folder/cert.pem" --tls-key "$folder/key.pem"
  n=$((n + 1))
  curl -sSN --cacert "$folder/cert.pem" "$url/v1/completions" -d '{"prompt":"once","stream":true}' |
    grep -q '^data: \[DONE\]' || { echo 'no stream over TLS' >&2 && exit 1; }
  kill -TERM "$pid"
  ends_well 'TLS'
else
  echo 'SKIPPED: TLS: openssl is not installed'
fi
echo "zinc serve as a process: $n checks"
