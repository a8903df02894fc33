# shellcheck shell=bash
# Functions that the Slurm jobs in this folder share: they start ranks, pass warnings on, save and resume a training.
# The jobs source it; it runs nothing by itself.

# shellcheck source=jobs/launch.bash
source "${BASH_SOURCE[0]%/*}/launch.bash"

# The jobs of a chain that wait for this one.
waiting_jobs() {
  squeue --me --all --noheader --states=PENDING --format='%i %E' |
    awk -v after=":$SLURM_JOB_ID([^0-9]|\$)" '$2 ~ after { print $1 }'
}

# Ends the job with a status that a repetition would not mend. In a chain, cancels the jobs that wait for this one, but
# not those of an array, whose other elements may go on.
give_up() { # STATUS
  if [[ ${TUTTI_CHAIN:-} && ! ${SLURM_ARRAY_TASK_ID:-} ]] && (($1)); then
    log "status $1; the rest of the chain is cancelled"
    waiting_jobs | xargs --no-run-if-empty scancel || true
  fi
  exit "$1"
}

trainer=./trainer
if [[ ! -f $trainer || ! -x $trainer ]] && ! trainer=$(type -P tutti); then
  log "no ./trainer in $PWD and no tutti in PATH: build it and link it there (docs/building.md), load tutti's " \
    "module, or submit from elsewhere"
  give_up 66
fi

# Sets `launcher`, which starts one rank per task: srun itself where it can connect the ranks (PMI), else
# mpirun, which reads the job's nodes from Slurm. TUTTI_LAUNCHER=srun or =mpirun overrides the choice.
choose_launcher() { # [NODE...], if not all of the job
  local pmi=pmix by=${TUTTI_LAUNCHER:-mpirun} nodes=${SLURM_JOB_NUM_NODES:-1}
  local per_node=${SLURM_NTASKS_PER_NODE:-$(((${SLURM_NTASKS:-1} + nodes - 1) / nodes))}
  if (($#)); then nodes=$#; fi
  local fit=$((nodes * per_node))
  # Slurm still reports the submitted number when the job has fewer nodes now.
  local ranks=${SLURM_NTASKS:-$fit}
  ((fit >= ranks)) || ranks=$fit
  if [[ $("$trainer" --version) == *MPICH* ]]; then pmi=pmi2; fi
  if [[ ! ${TUTTI_LAUNCHER:-} ]] && grep -qw "$pmi" <<<"$(srun --mpi=list 2>&1)"; then by=srun; fi
  case $by in
    srun)
      launcher=(srun --mpi="$pmi" --ntasks="$ranks" --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --kill-on-bad-exit=1)
      if (($#)); then launcher+=(--nodes="$nodes" --nodelist="$(IFS=, && echo "$*")"); fi
      ;;
    mpirun)
      launcher=(mpirun -np "$ranks")
      if (($#)); then launcher+=(-host "$(IFS=, && echo "${*/%/:$per_node}")"); fi
      # After SIGTERM, mpirun of Open MPI would kill its ranks in a second. scancel sends it to the ranks, too.
      if [[ $pmi == pmix ]] && env --block-signal=TERM true 2>/dev/null; then
        launcher=(env --block-signal=TERM "${launcher[@]}")
      fi
      if ((${SLURM_CPUS_PER_TASK:-1} > 1)) && [[ $pmi == pmix ]]; then
        launcher+=(--map-by "slot:PE=$SLURM_CPUS_PER_TASK")
      fi
      ;;
    *) log "TUTTI_LAUNCHER is srun or mpirun, not '$by'" && give_up 64 ;;
  esac
}

# Chooses a launcher for the nodes that are left of an allocation, which a job with --no-kill keeps: those that answer
# and have computed no wrong result.
choose_nodes_left() {
  local node state left=()
  if ((${SLURM_JOB_NUM_NODES:-1} == 1)); then [[ ! $wrong_hosts ]]; return; fi
  while read -r node state; do
    if [[ $state =~ ^(alloc|mix|idle|comp|drng)[^*]*$ && ,$wrong_hosts, != *,$node,* ]]; then left+=("$node"); fi
  done < <(sinfo --all --noheader --Node --nodes="$SLURM_JOB_NODELIST" --format='%N %t' | sort -u)
  ((${#left[@]})) || return
  unlock "${left[@]}"
  if ((${#left[@]} < SLURM_JOB_NUM_NODES)); then log "it goes on with ${left[*]}"; fi
  choose_launcher "${left[@]}"
}

# Runs a training in the folder `out` and sets its `status`, and `saved` if it stopped after
# saving a checkpoint. Warnings of Slurm reach all ranks as USR1. A training that was killed after a warning gets status
# 75, too, so that it is requeued: its ranks may have started too late to save. One that reported a failure, such as a
# full disk, keeps its status: it would fail again after each requeue.
train() { # OPTIONS
  mkdir -p "$out"
  before=$(newest_checkpoint)
  while :; do
    forget_last_launch
    status=75
    if [[ $stopped ]]; then return; fi # before the ranks started
    "${launcher[@]}" "$trainer" --keep-steps auto "$@" --out "$out" --resume &
    run=$!
    if [[ ${launcher[0]} == srun ]]; then await_launcher; else await_launcher "${SLURM_JOB_NODELIST-}"; fi
    set_wrong_checkpoints_aside # also after the last crash: somebody may resume the training
    # USR1 or TERM, if sent to the ranks alone, kills those that have only just been started.
    if [[ ${launcher[0]} == srun ]] && ((status == 128 + $(kill -l USR1) || status == 128 + $(kill -l TERM))); then
      break
    fi
    if [[ $stopped ]] || ! may_restart || ! choose_nodes_left; then break; fi
  done
  if exit_record_has '"status":75\b'; then saved=1; fi
  if ((status)) && [[ $stopped && ! $status =~ ^(64|65|66|73|74|88)$ ]]; then status=75; fi
}

# The hosts that a requeued job is to exclude, with those that it excludes already; empty: no new ones.
excluded_hosts() {
  local hosts
  hosts=$wrong_hosts
  if [[ ! $hosts ]]; then return; fi
  if [[ $job =~ ExcNodeList=([^[:space:]]+) && ${BASH_REMATCH[1]} != '(null)' ]]; then hosts+=,${BASH_REMATCH[1]}; fi
  echo "$hosts"
}

exclude_hosts() { # HOSTS JOB...
  local id
  for id in "${@:2}"; do
    if scontrol update JobId="$id" ExcNodeList="$1"; then
      log "job $id will not use $1; scontrol update JobId=$id ExcNodeList= undoes that"
    fi
  done
}

# Trains within Slurm's limits. A job that was stopped in time, or crashed, is requeued and then resumes
# from the newest checkpoint, unless scancel stopped it or it may not be requeued.
train_and_requeue() { # OPTIONS
  local saved='' job hosts element=${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}
  trap ask_to_stop USR1 TERM
  local task=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}
  local folder=${TUTTI_OUT:-runs/$SLURM_JOB_NAME-$task} # of an array, the beginning of its folders' names
  task+=$element
  out=$folder$element
  choose_launcher
  train "$@"
  ((status == 75)) || may_retry "$task on ${SLURM_JOB_NODELIST-}" "TUTTI_OUT=$folder sbatch ..." || give_up "$status"
  local end="status $status"
  if [[ $saved ]]; then end=saved; elif ((status == 75)); then end='stopped before it had saved'; fi
  job=$(scontrol show job "$task") || true
  hosts=$(excluded_hosts)
  if [[ $job =~ Restarts=([0-9]+) ]] && ((BASH_REMATCH[1] > ${SLURM_RESTART_COUNT:-0})); then
    log "$end; Slurm has put the job back into the queue"
  elif [[ $job == *JobState=COMPLETING\ Reason=None\ * ]]; then
    log "$end; cancelled; TUTTI_OUT=$folder sbatch ... resumes it"
  elif [[ $job == *\ Requeue=0\ * ]]; then
    log "$end; a job with TUTTI_OUT=$folder resumes it"
    # shellcheck disable=SC2046 # one word for each job
    if [[ $hosts && ${TUTTI_CHAIN:-} ]]; then exclude_hosts "$hosts" $(waiting_jobs); fi
  else
    log "$end; back into the queue"
    # Waits until Slurm ends the job: a job that ends by itself after a warning counts as completed.
    if [[ $hosts ]]; then trap '' TERM; fi # with which Slurm ends this script before the hosts are excluded
    if scontrol requeue "$task"; then
      if [[ $hosts ]]; then exclude_hosts "$hosts" "$task"; fi
      sleep 600
    fi
  fi
  exit "$status"
}
