#!/usr/bin/env bash
# examples/torchrun/gpu.sh as printed, under the real torchrun, over fake GPUs: two nodes with one program each, and one with two, train the
# bits of one program with two GPUs; a failure's cause is in torchrun's summary; after a crash torchrun starts all programs again and the
# run continues; a stop of torchrun saves it; the CPU is refused. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
gpu_towers=$(dirname "$towers")/tests/gpu/fake_cuda/towers_on_fake_gpus
[[ -x $gpu_towers ]] || { echo "SKIPPED: this build has no CUDA backend" >&2; exit 77; }
PATH=$PATH:${XDG_CACHE_HOME:-$HOME/.cache}/towers/torch/bin
command -v torchrun >/dev/null || { echo "SKIPPED: torchrun is neither in PATH nor in ~/.cache/towers/torch/bin" >&2; exit 77; }
torchrun --help | grep -q -- --nproc-per-node || { echo "SKIPPED: torchrun is that of a PyTorch before 2.0" >&2; exit 77; }
small_data "$work/data" 64 12 || exit $?
mkdir "$work/bin"
ln -s "$gpu_towers" "$work/bin/towers"
printf '#!/bin/sh\nfor i in $(seq "$FAKE_GPUS"); do echo "GPU $i: Fake GPU"; done\n' >"$work/bin/nvidia-smi"
chmod +x "$work/bin/nvidia-smi"
export PATH=$work/bin:$PATH TMPDIR=$work ASAN_OPTIONS=detect_leaks=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((19200 + RANDOM % 700))
run=(fashion_cnn --data-path "$work/data" --workers 1 --batch-size 1 --max-steps 6 --checkpoint-steps 2 --eval-batch-size 4 --log-interval 1
    --summary-interval 0 --output-dir "$work" --comm-timeout 120 --reduce ordered)

# nodes NAME ARGUMENT...: the example on two nodes of this machine; exit codes in codes, the output of node 0 in $err
nodes() {
    local node pids=()
    for node in 0 1; do
        NCCL_HOSTID=node$node "$source_dir/examples/torchrun/gpu.sh" "$@" >"$work/out-$node" 2>"$work/err-$node" </dev/null &
        pids+=($!)
    done
    codes=
    for node in 0 1; do
        wait "${pids[node]}"
        codes+="$? "
    done
    cat "$work"/err-* "$work"/out-* >"$err"
}
FAKE_GPUS=2 towers train "${run[@]}" --device cuda --experiment one >"$out" 2>"$err" </dev/null || complain "one program: $(tail -n 20 "$err")"
export FAKE_GPUS=1
nodes two "${run[@]}"
[[ $codes == "0 0 " ]] || complain "two nodes: exit codes $codes: $(tail -n 40 "$err")"
cmp "$work/one/last.safetensors" "$work/two/last.safetensors" || complain "two nodes: other weights than in one program"
grep -qF 'ranks 0..1 from torchrun (RANK)' "$err" || complain "two nodes: no line of ranks: $(cat "$err")"

# one node with two programs, which divide its GPUs
one_node() { # NAME ARGUMENT...
    torchrun --nnodes 1 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint "127.0.0.1:$((MASTER_PORT + 50))" --rdzv-id "$1" --max-restarts "${restarts:-0}" \
        --no-python towers train "${run[@]}" --experiment "$@" >"$out" 2>"$err" </dev/null
}
FAKE_GPUS=2 one_node together --device cuda || complain "one node: exit $?: $(tail -n 40 "$err")"
cmp "$work/one/last.safetensors" "$work/together/last.safetensors" || complain "one node: other weights than in one program"

# the cause of a failure is in torchrun's summary; it is the remedy that towers names
one_node on-cpu --device cpu && complain "--device cpu ended well"
grep -qE "traceback *: --device cpu on several hosts sums with MPI, but torchrun \(RANK\) starts programs without it; use mpirun" "$err" ||
    complain "--device cpu: torchrun does not report the cause: $(tail -n 40 "$err")"
grep -qE 'exitcode *: 5 ' "$err" || complain "--device cpu: torchrun does not report the exit code: $(tail -n 40 "$err")"

if ! TOWERS_FAULT=none: towers train "${run[@]}" --dry-run >/dev/null 2>&1; then
    # a tower's process is killed at step 4 of the first attempt: torchrun starts all again, and the run continues
    cat >"$work/program" <<'PROGRAM'
#!/bin/sh
[ "$TORCHELASTIC_RESTART_COUNT" != 0 ] || export TOWERS_FAULT=kill:tower=1,step=4
exec "$gpu_towers" "$@"
PROGRAM
    chmod +x "$work/program"
    export gpu_towers
    ln -sf "$work/program" "$work/bin/towers"
    nodes crash "${run[@]}"
    [[ $codes == "0 0 " ]] || complain "a crash: exit codes $codes: $(tail -n 60 "$err")"
    cmp "$work/one/last.safetensors" "$work/crash/last.safetensors" || complain "a crash: other weights than in an undisturbed run"
    grep -q 'resum' "$err" || complain "a crash: the run was not resumed: $(tail -n 60 "$err")"
    FAKE_GPUS=2 one_node gives-up --device cuda && complain "a crash without restarts ended well"
    grep -qE "traceback *: .*tower 1 .*killed by signal 9" "$err" || complain "a crash without restarts: torchrun does not report the cause: $(tail -n 40 "$err")"

    # a stop of torchrun on both nodes, as by a scheduler (one alone would wait for the other to come again): all save after the same step and leave; the run continues with the bits of an undisturbed one
    ln -sf "$gpu_towers" "$work/bin/towers"
    (
        export TOWERS_FAULT=delay:tower=1,step=1,ms=300
        nodes stop "${run[@]}" --max-steps 4000
    ) &
    job=$!
    for ((i = 0; i < 2400; i++)); do
        grep -q '"step":2,' "$work/stop/metrics.jsonl" 2>/dev/null && break
        sleep 0.05
    done
    ((i < 2400)) || complain "a stop: no second step within two minutes"
    pgrep -f -- "--rdzv-id stop .*$work" | xargs -r kill -TERM
    wait $job
    cat "$work"/err-* "$work"/out-* >"$err"
    step=$(sed -n 's/^stopped after step //p' "$err")
    [[ -n $step && -e $work/stop/ckpt/step-$(printf %010d "$step")/MANIFEST ]] || complain "SIGTERM to torchrun: not saved after step '$step': $(tail -n 60 "$err")"
    nodes stop "${run[@]}" --max-steps $((step + 2))
    [[ $codes == "0 0 " ]] || complain "continued after a stop: exit codes $codes: $(tail -n 40 "$err")"
    FAKE_GPUS=2 towers train "${run[@]}" --device cuda --experiment undisturbed --max-steps $((step + 2)) >"$out" 2>"$err" </dev/null || complain "undisturbed: $(tail -n 5 "$err")"
    cmp "$work/undisturbed/last.safetensors" "$work/stop/last.safetensors" || complain "continued after a stop: other weights than in an undisturbed run"
fi
check_end "torchrun: the bits of one program, the cause of a failure in its summary, a restart, a stop"
