# The functions of each run.sh: `broker` starts Korvet, `compare` checks the tests that passed.
# run.sh sets `here` to its own folder and sources this file.
#
#   KORVET_BROKERS  host:port,... of brokers to test, with the settings that run.sh names. Without it
#                   a broker is started, with its own Redis, and stopped at the end.
#   COMPAT_DIR      folder of sources, environments and logs; default build/compat in the repository.
#   PYTHON          the Python that has Korvet; default python3.
set -euo pipefail
export LC_ALL=C
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=${COMPAT_DIR:-$root/build/compat}/$(basename "$here")
python=${PYTHON:-python3}
mkdir -p "$work"

# Start a broker with these options, unless KORVET_BROKERS names some. Sets `brokers`.
broker() {
  brokers=${KORVET_BROKERS:-}
  [ -z "$brokers" ] || return 0
  rm -rf "$work/data"
  PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} "$python" -m korvet --preset kafka --ops off \
    --data-dir "$work/data" --listen 127.0.0.1:0 "$@" >"$work/broker.log" 2>&1 &
  broker_pid=$!
  trap 'kill "$broker_pid"; wait "$broker_pid" || true' EXIT
  for _ in $(seq 300); do
    kill -0 "$broker_pid" 2>/dev/null || break
    brokers=$(sed -n 's/^listening on \(127[0-9.:]*\).*/\1/p' "$work/broker.log")
    [ -z "$brokers" ] || return 0
    sleep 0.1
  done
  echo "the broker did not start:" >&2
  cat "$work/broker.log" >&2
  exit 1
}

# Compare the names in a file with tests.allow. With --update, add the new ones to it.
compare() {
  local passed=$work/passed allow=$here/tests.allow lost
  sort -u "$1" >"$passed.sorted" && mv "$passed.sorted" "$passed"
  if [ "${update:-}" = --update ]; then
    sort -u "$passed" "$allow" >"$passed.all" && mv "$passed.all" "$allow"
  fi
  lost=$(comm -23 "$allow" "$passed")
  echo "$(comm -12 "$allow" "$passed" | wc -l) of $(wc -l <"$allow") tests of tests.allow passed," \
    "$(comm -13 "$allow" "$passed" | wc -l) others; the log is $work/suite.log"
  [ -z "$lost" ] || { printf 'did not pass: %s\n' "$lost"; exit 1; }
}
