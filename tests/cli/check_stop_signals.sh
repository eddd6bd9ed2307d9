#!/usr/bin/env bash
# Signals that ask a run to stop: it saves, says so, and exits with 128 + the signal, or --preempt-exit; whatever started it, and also where
# that has started one program alone. SIGXCPU counts wherever it comes: the kernel sends it to the process that has used its time.
. "$1/tests/support/check.sh"
small_data data 96 30 || exit $?
needs_faults data
export TOWERS_FAULT=delay:tower=0,step=1,ms=40 # so that no run ends before it is stopped

# stops NAME CODE SIGNAL WHO VARIABLE...: WHO: run, or tower
stops() {
    local name=$1 code=$2 signal=$3 who=$4 status pid
    shift 4
    env "$@" "$towers" train fashion_cnn --data-path data --towers 2 -b 8 --threads 1 --epochs 4000 --experiment "$name" --summary-interval 0 >"$out" 2>"$err" </dev/null &
    wait_until grep -q '"step":2,' "runs/$name/metrics.jsonl" || complain "$name: no step: $(tail -n 3 "$err")"
    pid=$(cat "runs/$name/.lock")
    [[ $who == run ]] || pid=$(pgrep -P "$pid" tower1)
    kill -s "$signal" "$pid" || complain "$name: nothing to stop"
    wait $!
    status=$?
    [[ $status == "$code" ]] || complain "$name: exit $status instead of $code: $(tail -n 3 "$err")"
    local step=$(sed -n "s/^error: stopped by SIG$signal after step \\([0-9]*\\);.*/\\1/p" "$err")
    [[ -n $step && -e runs/$name/ckpt/step-$(printf %010d "$step")/MANIFEST ]] || complain "$name: not saved after step '$step': $(tail -n 3 "$err")"
    grep -q '"outcome":"stopped"' "runs/$name/outcome.json" || complain "$name: $(cat "runs/$name/outcome.json")"
}

slurm=(SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_NTASKS=1 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=1
    SLURM_STEP_NODELIST=localhost)
alongside stops alone 138 USR1 run
alongside stops alone-usr2 140 USR2 run
alongside stops alone-time 152 XCPU run
alongside stops tower-time 152 XCPU tower
together
alongside stops slurm 85 USR1 run "${slurm[@]}" TOWERS_PREEMPT_EXIT=85
alongside stops slurm-pmi 138 USR1 run "${slurm[@]}" PMI_RANK=0 PMI_SIZE=1 PMIX_RANK=0
alongside stops openmpi 138 USR1 run OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1
alongside stops hydra 138 USR1 run PMI_RANK=0 PMI_SIZE=1 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1
together
alongside stops torchrun 138 USR1 run RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=29500
alongside stops kubeflow 152 XCPU tower PET_NODE_RANK=0 PET_NNODES=1 PET_MASTER_ADDR=localhost PET_MASTER_PORT=29500
alongside stops batch 138 USR1 run SLURM_JOB_ID=77 SLURM_PROCID=0 SLURM_NTASKS=8
together

check_end "signals that ask for a stop: saved by every launcher's only program, and by none's"
