# shellcheck shell=bash
# Functions that the jobs in this folder share: they wait for a launcher, find out how the training in the folder `out`
# ended, and whether it may be started again. The jobs source it.

run=         # the launcher's process
stopped=     # 1: the training is asked to stop
asking=      # the process that repeats that
lock_before= # the text of the folder's lock when the launcher was started
last_before= # the last record of metrics.jsonl then
before=      # the newest checkpoint when the job started
furthest=-1  # the latest step at which a launch of this job began
futile=0     # launches since then
wrong_hosts= # those that audits found to compute wrong results, by short names: "n1,n2"

log() { # WORDS, joined
  local IFS=
  printf '%s: %s\n' "${SLURM_JOB_NAME:-${0##*/}}" "$*" >&2 || true
}

restarts=${TUTTI_RESTARTS:-3}
if ! [[ $restarts =~ ^(0|[1-9][0-9]{0,8})$ ]]; then
  log "TUTTI_RESTARTS is '$restarts': give a number of starts"
  exit 64
fi
launcher_seconds=${TUTTI_LAUNCHER_SECONDS:-120}
if ! [[ $launcher_seconds =~ ^[1-9][0-9]{0,8}$ ]]; then
  log "TUTTI_LAUNCHER_SECONDS is '$launcher_seconds': give a number of seconds, 1 or more"
  exit 64
fi

newest_checkpoint() {
  local manifests=("$out"/checkpoints/step-*.json)
  echo "${manifests[-1]}"
}

exit_record_has() { [[ $out && -r $out/exit.json && $(<"$out/exit.json") =~ $1 ]]; } # REGEX

lock_text() { cat "$out/lock" 2>/dev/null || true; }

last_record() { tail -n 1 "$out/metrics.jsonl" 2>/dev/null || true; }

# To be called before each launch.
forget_last_launch() {
  if [[ ! $out ]]; then return; fi
  rm -f "$out/exit.json"
  lock_before=$(lock_text)
  last_before=$(last_record)
}

# Whether the ranks of this launch have begun: they write a new text into the lock.
have_begun() { [[ $(lock_text) != "$lock_before" ]]; }

# Whether they have written why they ended, or that the training is over.
have_ended() {
  local last
  [[ ! -e $out/exit.json ]] || return 0
  last=$(last_record)
  [[ $last == '{"event":"end"'* && $last != "$last_before" ]]
}

# Asks the ranks to stop; for a trap. mpirun loses a signal while it starts the ranks, so it is repeated.
ask_to_stop() {
  stopped=1
  kill -USR1 "$run" 2>/dev/null || return 0
  [[ ! $asking ]] || return 0
  (for pause in 1 2 4 8 16 32; do sleep "$pause" && kill -USR1 "$run" || exit 0; done) &>/dev/null &
  asking=$!
}

# Kills the launcher `run`, and what it has started here, if its ranks have not begun after some time, or if it is still
# there some time after they have ended: Open MPI's mpirun waits for a node that has disappeared, and would hold the
# allocation.
kill_late_launcher() { # NODES; empty: none is named, and the launcher notices by itself that one is lost
  local late=0 since children
  trap '' HUP # of a terminal that is closed
  while ((late < launcher_seconds)); do
    sleep 1 &>/dev/null
    kill -0 "$run" 2>/dev/null || return 0
    if [[ ! $out ]]; then continue; fi
    if have_ended; then
      since='the ranks have ended' && ((++late))
    elif [[ ${1:-} ]] && ! have_begun; then
      since='it was started, and the ranks have not begun' && ((++late))
    else
      late=0
    fi
  done
  log "the launcher is still there $launcher_seconds s after $since: it is killed" \
    "${1:+; end what is left of it (orted) on $1}"
  children=$(pgrep -P "$run") || true
  # The launcher is the last one: when it has ended, await_launcher() ends this process.
  # shellcheck disable=SC2086 # one word for each process
  kill -KILL $children "$run" 2>/dev/null || true
}

# Waits for the launcher `run` and sets `status`. Launchers may hide that of the training, even behind 0; exit.json has
# it. MPICH's mpirun ends with the number of the signal that killed a rank, and shells with 128 more. Open MPI's ends
# with 0 when it is asked to stop before its daemons have connected.
await_launcher() { # NODES
  local guard
  if [[ $stopped ]]; then ask_to_stop; fi # while it was being started
  kill_late_launcher "${1-}" &
  guard=$!
  while kill -0 "$run" 2>/dev/null; do wait "$run" || true; done # a warning ends `wait`, too
  status=0
  wait "$run" || status=$?
  kill "$guard" 2>/dev/null || true
  wait "$guard" 2>/dev/null || true
  if [[ $asking ]]; then
    kill "$asking" 2>/dev/null || true
    wait "$asking" 2>/dev/null || true
    asking=
  fi
  if exit_record_has '"exclude":\[([^]]+)\]'; then
    wrong_hosts+=${wrong_hosts:+,}$(sed 's/"//g; s/\.[^,]*//g' <<<"${BASH_REMATCH[1]}")
  fi
  if exit_record_has '"status":([0-9]+)'; then
    status=${BASH_REMATCH[1]}
  elif ((status == 0)) && [[ $stopped && $out ]] && ! have_begun; then
    status=75
  elif ((status > 1 && status < 32)); then
    log "signal $(kill -l "$status") killed a rank; the launcher's message above names its host"
    ((status += 128))
  fi
}

# Moves checkpoints aside that may contain wrong results: those after the last step in which an audit confirmed the
# rank, or, if none did, all of the launch. If none is left, the training starts from the beginning.
set_wrong_checkpoints_aside() {
  local manifest right_at begun suspect=$out/checkpoints/suspect moved=
  if ((status != 87)) || ! exit_record_has '"right_at":([0-9]+)'; then return; fi
  right_at=${BASH_REMATCH[1]}
  begun=$(last_begin)
  if ((begun > right_at)); then right_at=$begun; fi
  for manifest in "$out"/checkpoints/step-*.json; do
    [[ $manifest =~ /step-([0-9]+)\.json$ ]] || continue
    ((10#${BASH_REMATCH[1]} > right_at)) || continue
    mkdir -p "$suspect"
    mv "${manifest%.json}"* "$suspect/"
    moved=1
  done
  if [[ $moved ]]; then log "checkpoints of later steps than $right_at may be wrong: moved to $suspect"; fi
}

# Removes the lock of the folder if rank 0 was on none of the hosts that are left: on NFS it outlives its host. Ranks
# that are still there write nothing more.
unlock() { # HOST...
  local holder
  { read -r holder <"$out/lock"; } 2>/dev/null || return 0
  if [[ $holder =~ ^"host "([^.,]+) && " $* " != *" ${BASH_REMATCH[1]} "* ]]; then rm -f "$out/lock"; fi
}

# Replaces the list `hosts` by one of the machines that are left: those that answer and have computed no wrong result. A
# line of it begins with a machine's name, address or alias; lines may repeat it.
leave_out_lost_hosts() { # REMOTE SHELL
  local line name host left=()
  local -A answers=() # what a machine calls itself; empty: it is left out
  while read -r line || [[ $line ]]; do
    name=${line%%[#:[:space:]]*}
    if [[ ! $name ]]; then continue; fi
    if [[ ! -v answers[$name] ]]; then
      host=$HOSTNAME
      if [[ $name != localhost && ${name%%.*} != "${HOSTNAME%%.*}" ]]; then
        # pbs_tmrsh passes no output on.
        host=$(timeout 10 "$@" "$name" uname -n </dev/null 2>/dev/null | tail -n 1) && host=${host:-$name} || host=
      fi
      answers[$name]=${host%%.*}
      if [[ ! $host ]]; then
        log "$name is left out: it does not answer"
      elif [[ ,$wrong_hosts, == *,${answers[$name]},* ]]; then
        log "$name is left out: it computed a wrong result"
        answers[$name]=
      fi
    fi
    if [[ ${answers[$name]} ]]; then left+=("$line"); fi
  done <"$hosts"
  hosts=$out/hosts
  ((${#left[@]})) || return
  mkdir -p "$out" # if no launch has begun
  printf '%s\n' "${left[@]}" >"$hosts"
  unlock "${answers[@]}"
}

# Whether the training crashed because of a lost node (86: a rank exited before it was noticed), a fault of one rank
# (87: replicas differed, or an audit found a wrong result), or the launcher.
has_lost_ranks() { ((status == 70 || status == 86 || status == 87 || status > 128)); }

# The step at which the last launch began; -1 if none did.
last_begin() {
  local record
  record=$(grep -s '^{"event":"run"' "$out/metrics.jsonl" | tail -n 1) || true
  if [[ $record =~ \"step\":([0-9]+) ]]; then echo "${BASH_REMATCH[1]}"; else echo -1; fi
}

# Whether the training has lost ranks and is started again at once, as often as it gets further. After three launches
# without progress (TUTTI_RESTARTS) it is not.
may_restart() {
  local begun
  has_lost_ranks || return
  begun=$(last_begin)
  if ((begun > furthest)); then furthest=$begun futile=0; else ((++futile)); fi
  ((futile < restarts)) || return
  log "the training has lost ranks (status $status): started again"
}

# Whether the training has saved a checkpoint since it started, when the newest one was `before`, or crashed after its
# first step.
has_progressed() {
  local begun
  if [[ $(newest_checkpoint) != "$before" ]]; then return; fi
  begun=$(last_begin)
  if ((begun < 0)); then begun=0; fi
  exit_record_has '"step":([0-9]+)' && ((BASH_REMATCH[1] > begun + 1))
}

# Whether a training that has lost ranks may be started by another job. Three restarts at most, and no second one in a
# row without progress: lack of memory, for example, would come back.
may_retry() { # JOB COMMAND, which resumes it
  has_lost_ranks || return
  local how="status $status"
  if ((status != 87)) && ! has_progressed; then
    how+=' without progress'
    if [[ -r $out/crashes && $(tail -n 1 "$out/crashes") == *'without progress' ]]; then
      log "$how, as before: not started again; $2 resumes it"
      return 1
    fi
  fi
  echo "$(date '+%F %T') job $1: $how" >>"$out/crashes"
  (($(wc -l <"$out/crashes") <= 3))
}
