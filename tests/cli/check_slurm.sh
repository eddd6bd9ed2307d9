#!/usr/bin/env bash
# examples/slurm/cpu.sbatch under a real Slurm of two nodes, whose daemons run on this machine with all of their files in a scratch folder.
# The signal that sbatch --signal announces the end with saves the run, exit code 85 brings the job back into the queue, and it
# continues with the bits of an undisturbed run. srun without MPI is refused for CPUs. Needs root. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
skip() {
    echo "SKIPPED: towers under Slurm: $*" >&2
    exit 77
}
[[ $(id -u) == 0 ]] || skip "its daemons need root"
for program in munged slurmctld slurmd sbatch; do command -v $program >/dev/null || skip "$program is missing (packages slurm-wlm, munge)"; done
"$towers" doctor 2>/dev/null | grep -q 'Open MPI' || skip "this build has no Open MPI"
small_data "$work/data" 96 30 || exit $?

port=$((14000 + RANDOM % 1500)) daemons=()
tear_down() {
    scancel --full --signal=KILL --user=root 2>/dev/null
    for pid in "${daemons[@]}"; do kill "$pid"; done 2>/dev/null
    for pid in "${daemons[@]}"; do wait "$pid"; done 2>/dev/null
    rm -rf "$work"
}
trap tear_down EXIT
mkdir "$work/state"
export SLURM_CONF=$work/slurm.conf
cat >"$SLURM_CONF" <<CONF
ClusterName=towers
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
AuthInfo=socket=$work/munge.socket
StateSaveLocation=$work/state
SlurmctldPidFile=$work/slurmctld.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdPidFile=$work/slurmd.%n.pid
SlurmdLogFile=$work/slurmd.%n.log
SlurmdSpoolDir=$work/spool.%n
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
ReturnToService=2
KillWait=10
MessageTimeout=60
DebugFlags=NO_CONF_HASH
NodeName=127.0.0.1 NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=16 Gres=gpu:2 State=UNKNOWN
NodeName=127.0.0.2 NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=16 Gres=gpu:2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
for gpu in 0 1; do mknod "$work/gpu$gpu" c 1 3 || skip "there is no mknod"; done # the devices
echo "Name=gpu File=$work/gpu[0-1]" >"$work/gres.conf"
head -c 1024 /dev/urandom >"$work/munge.key"
chmod 400 "$work/munge.key"
munged --foreground --force --socket="$work/munge.socket" --key-file="$work/munge.key" --log-file="$work/munged.log" --pid-file="$work/munged.pid" \
    --seed-file="$work/munged.seed" >"$work/munged.out" 2>&1 &
daemons+=($!)

# waits_for SECONDS TEXT COMMAND...: until the command succeeds
waits_for() {
    local end=$((SECONDS + $1)) text=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || { complain "$text: $(tail -n 3 "$work"/*.log "$work"/munged.out)"; check_end; }
        sleep 0.2
    done
}
waits_for 60 "munged has no socket" test -S "$work/munge.socket"
slurmctld -D >"$work/slurmctld.out" 2>&1 &
daemons+=($!)
for node in 127.0.0.1 127.0.0.2; do
    mkdir "$work/tmp.$node" "$work/spool.$node"
    sed "\$ a TmpFS=$work/tmp.$node" "$SLURM_CONF" >"$work/slurm.$node.conf" # where its PMIx has files by fixed names
    slurmd -D -N $node -f "$work/slurm.$node.conf" >"$work/slurmd.$node.out" 2>&1 &
    daemons+=($!)
done
both_idle() { [[ $(sinfo -h -o %T -t idle -N | wc -l) == 2 ]]; }
waits_for 60 "the nodes do not come" both_idle

# What the jobs find as towers: the first start of a job is slow, so that the signal finds it running; GPUs are fake ones.
gpu_towers=$(dirname "$towers")/tests/gpu/fake_cuda/towers_on_fake_gpus
mkdir "$work/bin" "$work/runs"
cat >"$work/bin/towers" <<PROGRAM
#!/bin/sh
[ -n "\$SLURM_RESTART_COUNT" ] || [ -n "\$fast" ] || export TOWERS_FAULT=delay:tower=5,step=1,ms=600
case " \$* " in *' --device cuda '*) export TOWERS_FAULT= NCCL_HOSTID=\$SLURM_NODEID && exec '$gpu_towers' "\$@" ;; esac
exec '$towers' "\$@"
PROGRAM
chmod +x "$work/bin/towers"
export PATH=$work/bin:$PATH TMPDIR=$work TOWERS_OUTPUT_DIR=$work/runs TOWERS_DATA_PATH=$work/data TOWERS_MAX_STEPS=100 TOWERS_BATCH_SIZE=2 TOWERS_THREADS=1 \
    TOWERS_WORKERS=1 TOWERS_EVAL_BATCH_SIZE=4 TOWERS_LOG_INTERVAL=1 TOWERS_SUMMARY_INTERVAL=0 OMPI_MCA_btl_tcp_if_include=lo FAKE_GPUS=2 \
    ASAN_OPTIONS=detect_leaks=0
needs_faults "$work/data"

job=$(sbatch --parsable --cpus-per-task=1 --time=2 --signal=USR1@70 "$source_dir/examples/slurm/cpu.sbatch" fashion_cnn) || complain "sbatch refuses examples/slurm/cpu.sbatch"
fast=1 towers train fashion_cnn --device cpu --towers 8 --experiment one >"$out" 2>"$err" </dev/null || complain "one program: $(tail -n 3 "$err")"
if [[ -x $gpu_towers ]]; then
    gpu_job=$(TOWERS_MAX_STEPS=2 TOWERS_BATCH_SIZE=1 TOWERS_REDUCE=ordered sbatch --parsable --cpus-per-task=1 --gpus-per-node=2 "$source_dir/examples/slurm/gpu.sbatch" fashion_cnn) ||
        complain "sbatch refuses examples/slurm/gpu.sbatch"
    TOWERS_MAX_STEPS=2 TOWERS_BATCH_SIZE=1 FAKE_GPUS=4 towers train fashion_cnn --device cuda --reduce ordered --experiment gpus >"$out" 2>"$err" </dev/null ||
        complain "one program with GPUs: $(tail -n 3 "$err")"
else
    left_out "the example for GPUs: this build has no fake GPUs"
fi

# srun without MPI cannot sum over CPU hosts
fast=1 srun --mpi=none --nodes=2 --immediate=60 towers train fashion_cnn --device cpu --towers 8 --experiment without-mpi >"$out" 2>"$err" </dev/null
code=$?
[[ $code == 5 ]] && grep -qF 'sums with MPI, but Slurm (SLURM_PROCID) starts programs without it; use mpirun, or srun --mpi=pmix' "$err" ||
    complain "srun without MPI: exit $code: $(tail -n 5 "$err")"

state_of() { scontrol -o show job "$1" | sed 's/.* JobState=\([A-Z_]*\) .*/\1/'; }
ended() { [[ $(state_of "$1") =~ ^(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL)$ ]]; }
requeued() { grep -q ' Restarts=1 ' <<<"$(scontrol -o show job "$job")" || ended "$job"; }
pending() { [[ $(state_of "$job") == PENDING ]] || ended "$job"; }
started_again() { [[ $(state_of "$job") == RUNNING ]] || ended "$job"; }
finished() { # JOB NAME RUN REFERENCE
    waits_for 300 "$2 does not end: $(scontrol -o show job "$1")" ended "$1"
    [[ $(state_of "$1") == COMPLETED ]] || complain "$2: $(state_of "$1"): $(tail -n 5 "slurm-$1.out")"
    cmp "runs/$4/last.safetensors" "runs/$3/last.safetensors" || complain "$2: other weights than in one program: $(tail -n 5 "slurm-$1.out")"
}
waits_for 300 "the job is not back in the queue" requeued
stopped=$(sed -n 's/^stopped after step //p' "slurm-$job.out")
# The signal may come before the first step, when there is nothing to save.
[[ $stopped == 0 || -e runs/slurm-$job/ckpt/step-$(printf %010d "$stopped")/MANIFEST ]] ||
    complain "the signal did not save the run after step '$stopped': $(scontrol -o show job "$job"; ls "runs/slurm-$job/ckpt"; tail -n 5 "slurm-$job.out")"
[[ ! -e runs/slurm-$job/stack-tower-0.txt && ! -e runs/slurm-$job/stack-tower-4.txt ]] || complain "towers that did not hang have written their calls"
# Slurm itself waits two minutes. It refuses a job that begins in the second in which its first start was ended. No signal this time.
waits_for 300 "the job does not wait for its second start" pending
scontrol update JobId="$job" StartTime=now+2 TimeLimit=60
waits_for 300 "the job does not start again" started_again
[[ ! -x $gpu_towers ]] || finished "$gpu_job" examples/slurm/gpu.sbatch "slurm-$gpu_job" gpus
finished "$job" examples/slurm/cpu.sbatch "slurm-$job" one
[[ $(grep -cF '; ranks 0..1 from Slurm (SLURM_PROCID)' "slurm-$job.out") == 2 ]] || complain "not two starts in two programs each: $(cat "slurm-$job.out")"
check_end "towers under Slurm: saved by its signal, back in the queue, and continued bit for bit"
