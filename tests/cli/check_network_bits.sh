#!/usr/bin/env bash
# Five networks of torchvision and timm from ONNX files (tests/golden/networks/), each of another family, in f32 and in bf16: four towers
# give the same bits in one process and in four, and killed and resumed in two; and one tower with all samples computes the same loss
# as four that share the statistics of their norms.
. "$1/tests/support/check.sh"
small_data "$work/data" 64 10 || exit $?
needs_faults "$work/data"

train() { # NAME ARGUMENT...
    timeout -s KILL 300 "$towers" train "${@:2}" --threads 1 --quiet >"$out" 2>"err.$1" </dev/null
}

trained() { # CODE NAME ARGUMENT...
    ends "$1" "$2" "$network" --from-scratch --dataset synthetic --device cpu --workers 0 --max-steps 5 --eval-interval 0 --experiment "${@:2}"
}

same() { # A B
    cmp <(tensors "runs/$1/last.safetensors") <(tensors "runs/$2/last.safetensors") || complain "$1 and $2 have other weights"
    [[ -s runs/$1/metrics.jsonl ]] && diff <(timeless "runs/$1/metrics.jsonl") <(timeless "runs/$2/metrics.jsonl") >"$work/diff" ||
        complain "$1 and $2 have other records: $(head -c 600 "$work/diff")"
}

first_loss() { # NAME
    sed -nE '1s/.*"mean_loss":([^,]*),.*/\1/p' "runs/$1/metrics.jsonl"
}

types=(f32 bf16) networks=("$source_dir"/tests/golden/networks/*.onnx.gz)
((${#networks[@]} == 5)) || complain "not five networks: ${networks[*]}"
if ! "$towers" info fashion_cnn --device cpu --amp >"$out" 2>"$err" && grep -q 'no bf16 arithmetic' "$err"; then
    left_out "networks from files in bf16: this processor has no such arithmetic"
    types=(f32)
fi
for packed in "${networks[@]}"; do
    network=$(basename "$packed" .gz) name=$(basename "$packed" .onnx.gz)
    gzip -dc "$packed" >"$network"
    for type in "${types[@]}"; do
        run=$name-$type options=(--towers 4 --batch-size 4) way=()
        [[ $type == f32 ]] || way=(--amp)
        trained 0 "$run" "${options[@]}" "${way[@]}" --processes 1
        trained 0 "$run-four" "${options[@]}" "${way[@]}" --processes 4
        same "$run" "$run-four"
        TOWERS_FAULT="kill:tower=2,step=4,activity=backward" trained 7 "$run-cut" "${options[@]}" "${way[@]}" --processes 4 --checkpoint-steps 2
        [[ $(cat "runs/$run-cut/ckpt/latest") == step-0000000002 ]] || complain "$run-cut: not killed behind step 2: $(cat "runs/$run-cut/ckpt/latest")"
        rm "$network" # the run has its own
        ends 0 "$run-cut" --resume "runs/$run-cut" --processes 2
        gzip -dc "$packed" >"$network"
        same "$run" "$run-cut"
    done
    ((${#types[@]} == 1)) || ! cmp -s <(tensors "runs/$name-f32/last.safetensors") <(tensors "runs/$name-bf16/last.safetensors") || complain "$name: bf16 computes as f32"
    trained 0 "$name-one" --towers 1 --batch-size 16 --max-steps 1
    trained 0 "$name-sync" --towers 4 --batch-size 4 --max-steps 1 --processes 4 --bn-stats sync
    awk -v a="$(first_loss "$name-one")" -v b="$(first_loss "$name-sync")" 'BEGIN { d = a - b; exit !(a > 0 && d < 1e-5 * a && d > -1e-5 * a) }' ||
        complain "$name: the loss of one tower is $(first_loss "$name-one"), of four $(first_loss "$name-sync")"
done
check_end "${#networks[@]} networks from files: the same bits in one process and in four, killed and resumed, in f32 and bf16"
