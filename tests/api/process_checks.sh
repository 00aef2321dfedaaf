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

until_true() { # until_true WHAT COMMAND...: waits until the command succeeds; fails after two minutes
  local what=$1 end=$((SECONDS + 120))
  shift
  until "$@"; do
    [ $SECONDS -lt $end ] || { echo "after two minutes still not: $what" >&2 && cat "$folder/err" >&2 && exit 1; }
    sleep 0.05
  done
}

is_listening() { # sets url; fails if the server has ended
  kill -0 "$pid" 2>/dev/null || { echo 'zinc serve ended before it listened:' >&2 && cat "$folder/err" >&2 && exit 1; }
  url=$(sed -n 's/^listening on //p' "$folder/out")
  [ -n "$url" ]
}

start() { # sets pid and url
  : >"$folder/out"
  "$zinc" serve "$model" --port 0 "$@" >"$folder/out" 2>"$folder/err" &
  pid=$!
  until_true 'the server listens' is_listening
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
fails 'cannot be read' "$model" --port 0 --api-keys "$folder/nowhere"
fails 'is not a name' "$model" --port 0 --replica a_b
fails 'GGUF' "$0" --port 0

start
curl -sS "$url/health" >/dev/null
kill -TERM "$pid"
ends_well 'idle'

# A response in progress at the signal is finished; new connections are refused.
start
rm -f "$folder/stream" # of an earlier run
curl -sSN "$url/v1/completions" -d '{"prompt":"once","max_tokens":900,"ignore_eos":true,"stream":true}' >"$folder/stream" &
reader=$!
until_true 'the stream has begun' grep -qs 'data:' "$folder/stream"
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

# Temporary files of a killed save are removed at the start.
: >"$folder/qwen3-q8_0.cache.part-1-0"
start --cache-folder "$folder"
n=$((n + 1))
[ ! -e "$folder/qwen3-q8_0.cache.part-1-0" ] || { echo 'a temporary file of a killed save is still there' >&2 && exit 1; }
kill -TERM "$pid"
ends_well 'with a leftover temporary file'

# The server outlives the reader of its standard error.
rm -f "$folder/fifo"
mkfifo "$folder/fifo"
head -n 1 "$folder/fifo" >/dev/null &
: >"$folder/out"
"$zinc" serve "$model" --port 0 >"$folder/out" 2>"$folder/fifo" &
pid=$!
until_true 'the server listens' is_listening
rm "$folder/fifo"
for _ in 1 2 3; do curl -sS "$url/v1/models" >/dev/null; done
kill -TERM "$pid"
ends_well 'without a reader of its standard error'

# Two names of one file are one model.
start "second=$model"
n=$((n + 2))
[ "$(curl -sS "$url/props" | grep -o '"tool_format"' | wc -l)" = 1 ] || { echo 'one file was loaded twice' >&2 && exit 1; }
for name in qwen3-q8_0 second; do
  answer=$(curl -sS "$url/v1/completions" -d "{\"model\":\"$name\",\"prompt\":\"once\",\"max_tokens\":1}")
  grep -q "\"model\":\"$name\"" <<<"$answer" || { echo "no answer as $name: $answer" >&2 && exit 1; }
done
kill -TERM "$pid"
ends_well 'with two names of one file'

# A model file that is truncated under the server is named.
cp "$model" "$folder/truncated.gguf"
: >"$folder/out"
"$zinc" serve "$folder/truncated.gguf" --port 0 >"$folder/out" 2>"$folder/err" &
pid=$!
until_true 'the server listens' is_listening
: >"$folder/truncated.gguf"
curl -sS "$url/v1/completions" -d '{"prompt":"once","max_tokens":5}' >/dev/null 2>&1 || true
code=0
sleep 1
kill -TERM "$pid" 2>/dev/null || true
wait "$pid" || code=$?
pid=
n=$((n + 1))
if [ $code -ne 1 ] || ! grep -q 'truncated.gguf: the file was truncated' "$folder/err"; then
  echo "a truncated model file: exit code $code" >&2 && cat "$folder/err" >&2 && exit 1
fi

# Named API keys: limits, and a new file after SIGHUP.
echo '{"keys": [{"name": "alice", "key": "a", "requests_per_minute": 1}]}' >"$folder/keys.json"
start --api-keys "$folder/keys.json"
n=$((n + 4))
status() { curl -sS -o /dev/null -w '%{http_code}' -H "api-key: $1" "$url/tokenize" -d '{"content":"x"}'; }
[ "$(status b) $(status a) $(status a)" = '401 200 429' ] || { echo 'limits of a named key' >&2 && exit 1; }
echo '{"keys": [{"name": "alice", "key": "b"}]}' >"$folder/keys.json"
kill -HUP "$pid"
has_key_b() { [ "$(status b)" = 200 ]; }
until_true 'SIGHUP loads the new keys' has_key_b
[ "$(status b) $(status a)" = '200 401' ] || { echo 'SIGHUP did not load the new keys' >&2 && exit 1; }
echo 'no JSON' >"$folder/keys.json"
kill -HUP "$pid"
until_true 'the bad keys are reported' grep -q 'the previous API keys stay in effect' "$folder/err"
[ "$(status b)" = 200 ] || { echo 'a bad file of keys took the good ones away' >&2 && exit 1; }
kill -TERM "$pid"
ends_well 'with named keys'

# Options of requests: OpenAI's sampling, strict fields, no kept responses, an OpenTelemetry collector (which is not there).
start --sampling-defaults openai --strict-fields --responses-kept 0 --otlp-endpoint http://127.0.0.1:9
answers() { # answers PATTERN PATH [BODY]
  local answer
  n=$((n + 1))
  answer=$(curl -sS -w ' %{http_code}' "$url$2" ${3:+-d "$3"})
  grep -q -- "$1" <<<"$answer" || { echo "$2: no '$1' in $answer" >&2 && exit 1; }
}
answers '"default_sampling":{"temperature":1\.0,"top_k":0,"top_p":1\.0' /props
answers "unknown field 'no_such_field'.* 400\$" /v1/completions '{"prompt":"x","no_such_field":1}'
answers '"status":"completed"\|"status":"incomplete"' /v1/responses '{"input":"x","max_output_tokens":16}'
id=$(curl -sS "$url/v1/responses" -d '{"input":"x","max_output_tokens":16}' |
  sed -n 's/.*"id":"\(resp_[0-9a-f]*\)".*/\1/p')
answers '--responses-kept is 0.* 400$' /v1/responses "{\"input\":\"x\",\"previous_response_id\":\"$id\"}"
for _ in $(seq 600); do
  ! grep -q 'http://127.0.0.1:9/v1/traces: spans could not be exported' "$folder/err" || break
  sleep 0.05
done
n=$((n + 1))
grep -q 'spans could not be exported' "$folder/err" || { echo 'no span was sent to --otlp-endpoint' >&2 && exit 1; }
kill -TERM "$pid"
ends_well 'with options of requests'

# A Unix socket.
start --host "unix:$folder/socket"
n=$((n + 1))
curl -sS --unix-socket "$folder/socket" http://localhost/health | grep -q '"ok"' || { echo 'no answer' >&2 && exit 1; }
kill -TERM "$pid"
ends_well 'on a Unix socket'

# Without a model and without a network: the page and the API say what to do.
: >"$folder/out"
rm -rf "$folder/home" && mkdir "$folder/home"
HOME=$folder/home XDG_CACHE_HOME=$folder/home HF_HUB_OFFLINE=1 http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9 \
  PIP_INDEX_URL=http://127.0.0.1:9 OLLAMA_MODELS=$folder/home "$zinc" serve --port 0 >"$folder/out" 2>"$folder/err" &
pid=$!
until_true 'the server listens' is_listening
n=$((n + 2))
curl -sS "$url/v1/chat/completions" -d '{"messages":[]}' -o "$folder/answer" -w '%{http_code}' | grep -q '^[45]' &&
  curl -sS "$url/v1/completions" -d '{"prompt":"x"}' | grep -q 'no model is loaded: choose one' || {
  echo 'no server without a model' >&2 && cat "$folder/err" "$folder/answer" >&2 && exit 1
}
kill -TERM "$pid"
ends_well 'without a model'

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
