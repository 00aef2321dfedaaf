# Sourced by tests/api/run and run_frameworks: servers that stop with the script. REQUIRES: $folder.
pids=()
stop_servers() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" || true; done
}
trap stop_servers EXIT

start() { # start NAME COMMAND...: sets `url` once it listens
  local name=$1 tries=0
  shift
  : >"$folder/$name.out"
  "$@" >"$folder/$name.out" 2>"$folder/$name.err" &
  pids+=($!)
  until url=$(sed -n 's/^listening on //p' "$folder/$name.out") && [ -n "$url" ]; do
    if [ $((tries += 1)) -gt 1200 ] || ! kill -0 "${pids[-1]}" 2>/dev/null; then
      echo "$name does not listen:" >&2
      cat "$folder/$name.err" >&2
      exit 1
    fi
    sleep 0.1
  done
}
