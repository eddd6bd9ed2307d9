#!/usr/bin/env bash
# The commands of docs/scaling.md and examples/mpirun as printed, by the real mpirun of Open MPI. Two loopback addresses are the hosts; a launch
# agent takes the place of ssh. All train the same weights, and SIGUSR1 to mpirun stops a run, saved.
. "$1/tests/support/check.sh"
small_data "$work/data" 96 30 || exit $?
"$towers" doctor 2>/dev/null | grep -q 'Open MPI' && command -v mpirun.openmpi >/dev/null ||
    { echo "SKIPPED: towers on several hosts: this build has no Open MPI, or mpirun is missing" >&2; exit 77; }
mkdir "$work/bin" "$work/runs"
ln -s "$towers" "$work/bin/towers"
ln -s "$(command -v mpirun.openmpi)" "$work/bin/mpirun"
# HOST COMMAND...; each host has a folder of its own, as real ones do: daemons that share one make the same files at the same time.
cat >"$work/agent" <<'AGENT'
#!/bin/sh
export TMPDIR="$TMPDIR/$1"
shift
mkdir -p "$TMPDIR" && exec sh -c "$*"
AGENT
chmod +x "$work/agent"
export PATH=$work/bin:$PATH OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm_rsh_agent=$work/agent PRTE_MCA_plm_ssh_agent=$work/agent \
    OMPI_MCA_oob_tcp_if_include=lo OMPI_MCA_btl_tcp_if_include=lo TOWERS_OUTPUT_DIR=$work/runs TOWERS_MAX_STEPS=4 TOWERS_BATCH_SIZE=2 \
    TOWERS_THREADS=1 TOWERS_WORKERS=1 TOWERS_EVAL_BATCH_SIZE=4
a=127.0.0.2 b=127.0.0.3
# Each start of mpirun has a folder of its own: the last one may still remove its files.
own_folder() { export TMPDIR=$(mktemp -d "$work/tmp.XXXXXX"); }

towers train fashion_cnn --device cpu --towers 8 --data-path "$work/data" --experiment one >"$out" 2>"$err" </dev/null || complain "one program: $(tail -n 3 "$err")"
trained() { # COMMAND: it has ended well, in a run of its own with the weights of one program
    local run=$(sed -n 's/^run directory //p' "$err" | tail -n 1)
    cmp "$work/runs/one/last.safetensors" "$run/last.safetensors" || complain "'$1': other weights than in one program: $(tail -n 3 "$err")"
    grep -qF '; ranks 0..1 from Open MPI (OMPI_COMM_WORLD_RANK)' "$err" || complain "'$1': no line of ranks: $(cat "$err")"
}

commands=0
while read -r line; do
    commands=$((commands + 1))
    line=$(sed "s|\bDIR\b|$work/data|; s|--host a,b|--host $a,$b|; s|,c,d |,127.0.0.4,127.0.0.5 |; s|MASTER_ADDR=a\b|MASTER_ADDR=$a|" <<<"$line")
    own_folder
    (cd "$work" && eval "$line") >"$out" 2>"$err" </dev/null || complain "'$line': exit $?: $(head -n 20 "$err"; echo ...; tail -n 5 "$err")"
    [[ $line != *" train "* ]] || trained "$line"
done < <(sed -n '/^```sh$/,/^```$/ { /^```/d; p }' "$source_dir/docs/scaling.md")
((commands >= 2)) || complain "docs/scaling.md has $commands commands"

own_folder
HOSTS=$a,$b "$source_dir/examples/mpirun/cpu.sh" example fashion_cnn --data-path "$work/data" >"$out" 2>"$err" </dev/null ||
    complain "examples/mpirun/cpu.sh: exit $?: $(tail -n 5 "$err")"
trained examples/mpirun/cpu.sh

needs_faults "$work/data"
own_folder
(
    export HOSTS=$a,$b TOWERS_FAULT=delay:tower=5,step=1,ms=50
    exec "$source_dir/examples/mpirun/cpu.sh" stopped fashion_cnn --data-path "$work/data" --max-steps 4000 >"$out" 2>"$err" </dev/null
) &
pid=$!
wait_until grep -q '"step":3,' "$work/runs/stopped/metrics.jsonl"
kill -USR1 $pid
wait $pid
code=$?
[[ $code == 138 ]] || complain "SIGUSR1 to mpirun: exit $code: $(tail -n 5 "$err")"
step=$(sed -n 's/^stopped after step //p' "$err")
[[ -n $step && -e $work/runs/stopped/ckpt/step-$(printf %010d "$step")/MANIFEST ]] || complain "SIGUSR1 to mpirun: not saved after step '$step': $(tail -n 5 "$err")"

# SIGKILL to mpirun leaves files of Open MPI alone, which the command of docs/scaling.md removes.
own_folder
mkdir "$TMPDIR/shm"
TOWERS_FAULT=delay:tower=1,step=1,ms=50 OMPI_MCA_btl_vader_backing_directory=$TMPDIR/shm mpirun -np 2 --bind-to none towers train fashion_cnn \
    --device cpu --towers 2 --data-path "$work/data" --max-steps 4000 --experiment killed >"$out" 2>"$err" </dev/null &
pid=$!
wait_until grep -q '"step":3,' "$work/runs/killed/metrics.jsonl"
kill -KILL $pid
wait $pid 2>/dev/null
none_is_left() { ! pgrep -f -- "--data-path $work/data .*--experiment killed" >/dev/null; }
wait_until none_is_left || complain "SIGKILL to mpirun: programs are left minutes later: $(pgrep -af -- "--experiment killed")"
if [[ $(mpirun --version) == *') 4.'* ]]; then
    [[ -n $(find "$TMPDIR/shm" -name 'vader_segment.*') && -d $TMPDIR/ompi.$(hostname -s).$(id -u) ]] || complain "SIGKILL to mpirun leaves $(find "$TMPDIR")"
    remove=$(grep -o '`rm -rf /dev/shm/vader_segment[^`]*`' "$source_dir/docs/scaling.md" | tr -d '`')
    eval "${remove/\/dev\/shm/$TMPDIR/shm}"
    [[ $(ls "$TMPDIR") == shm && -z $(ls "$TMPDIR/shm") ]] || complain "after '$remove': $(find "$TMPDIR")"
else
    left_out "what SIGKILL to mpirun leaves: this is not Open MPI 4"
fi
check_end "the commands for several hosts, as printed"
