# shellcheck shell=bash
# Stages of the scripts in this folder. Each has a title, a log and its seconds. A stage prints little when it succeeds,
# and when it fails shows the end of its log and a remedy. Source this file; it runs nothing by itself.

root=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
program=tools/$(basename "$0")
meter=

fail() {
  printf '%s: %s\n' "$program" "$*" >&2
  exit 1
}

# Sets `logs`, the folder that stages write to: in the checkout where that can be written.
open_logs() {
  logs=$root/build/logs
  mkdir -p "$logs" 2>/dev/null && [[ -w $logs ]] || logs=$(mktemp -d "${TMPDIR:-/tmp}/tutti-logs.XXXXXX")
}

# The last line of a log, or only its counter where ninja left one.
last_step() {
  local line
  line=$(tail -c 400 "$1" | tr '\r' '\n' | grep -v '^[[:space:]]*$' | tail -n 1)
  if [[ $line =~ ^(\[[0-9]+/[0-9]+\]) ]]; then line=${BASH_REMATCH[1]}; fi
  printf '%.40s' "$line"
}

show_meter() { # TITLE LOG
  local started=$SECONDS
  while sleep 0.2; do
    printf '\r\033[K%s: %d s  %s' "$1" $((SECONDS - started)) "$(last_step "$2")"
  done
}

# Where the output is no terminal: the share of ninja's steps, whenever it has grown by a tenth.
show_tenths() { # LOG
  local shown=0
  while sleep 1; do
    [[ $(last_step "$1") =~ ^.([0-9]+)/([0-9]+) ]] || continue
    local tenth=$((10 * BASH_REMATCH[1] / BASH_REMATCH[2]))
    ((tenth > shown && tenth < 10)) || continue
    shown=$tenth
    printf '%d %% ' $((10 * tenth))
  done
}

stop_meter() {
  [[ -n $meter ]] || return 0
  kill -KILL "$meter" 2>/dev/null || true
  wait "$meter" 2>/dev/null || true
  meter=
  [[ ! -t 1 ]] || printf '\r\033[K'
}
trap stop_meter EXIT

# stage TITLE ADVICE COMMAND...: runs the command into its own log, and shows its progress in one line. Ends the script
# with the command's status when that is not 0.
stage() {
  local title=$1 advice=$2 log status=0 started=$SECONDS
  shift 2
  log=$logs/${program##*/}-${title// /-}.log
  : >"$log"
  if [[ -t 1 ]]; then
    show_meter "$title" "$log" &
  else
    printf '%s: ' "$title"
    show_tenths "$log" &
  fi
  meter=$!
  set +e
  (
    set -e # which || would turn off
    "$@"
  ) >"$log" 2>&1 </dev/null
  status=$?
  set -e
  stop_meter
  [[ ! -t 1 ]] || printf '%s: ' "$title"
  if ((status != 0)); then
    printf 'failed after %d s\n' $((SECONDS - started))
    {
      tail -n 30 "$log"
      printf '\n%s: "%s" failed with status %d\n  log:  %s\n  try:  %s\n' \
        "$program" "$title" "$status" "$log" "$advice"
    } >&2
    exit "$status"
  fi
  printf '%d s\n' $((SECONDS - started))
}

# The digest of the weights at the end of a training, whose output it reads.
weights_printed() {
  sed -n 's/.*done after .* weights \([0-9a-f]*\)$/\1/p' | tail -n 1
}

# Links `./trainer` in the checkout to the last build.
link_trainer() { # PRESET
  ln -sfn "build/$1/trainer" "$root/trainer"
}

# The processors that this process may use. OMP_NUM_THREADS=1, which clusters set, would make nproc count one.
processors() { env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc; }

configure_and_build() { # PRESET [BUILD ARGUMENTS...]
  local preset=$1
  shift
  stage configure "read the last lines above; after a change of compiler or libraries: rm -rf build/$preset" \
    cmake --preset "$preset"
  stage build "cmake --build --preset $preset, which shows the first error by itself" \
    env NINJA_STATUS='[%f/%t] ' cmake --build --preset "$preset" --parallel "$(processors)" "$@"
}

# The tests that any machine can run: no GPU, Slurm cluster, real data set or much time. Two more at a time than there
# are cores, since ranks often wait for each other, or for a clock.
run_tests() { # PRESET [CTEST OPTIONS...]
  local preset=$1
  shift
  ctest --test-dir "build/$preset" --parallel "$(($(processors) + 2))" --output-on-failure --no-tests=error \
    --label-exclude '^(gpu|slow|slurm|data)$' "$@"
}
