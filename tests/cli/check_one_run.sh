#!/usr/bin/env bash
# Uses of a run's folder: it is evaluated, exported and described by its name alone, started from, and recognized as complete when
# resumed; and errors if results cannot be written. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
small_data "$work/data" 64 30 || exit $?

# ends CODE TEXT ARGUMENT...: exit code, TEXT in what is printed
ends() {
    local code=$1 text=$2 status
    shift 2
    "$towers" "$@" >out 2>err </dev/null
    status=$?
    [[ $status == "$code" ]] || complain "towers $*: exit $status instead of $code: $(cat err)"
    grep -qF -- "$text" out err || complain "towers $*: wanted '$text', got: $(cat out err)"
}

train=(train fashion_cnn --device cpu --data-path "$work/data" -b 16 --img-size 20 --classes 12)
ends 0 "run directory" "${train[@]}" --epochs 1 --experiment one

# a run introduces itself on the console and in its log, and says at the end what can follow
for line in 'model +fashion_cnn, 56,524 parameters, input 20 x 20, f32' \
    "data +data \(IDX, $work/data\): 64 training and 30 evaluation images, 28 x 28 x 1, 10 classes" \
    'towers +1 x batch 16 = 16 images per step, in 1 process' 'device +cpu: .*oneDNN [0-9.]+, [0-9]+ threads?' 'steps +4 = 1 epoch of 4' \
    'run directory +runs/one'; do
    grep -qE "^$line\$" err || complain "the console's header lacks '$line': $(cat err)"
    grep -qE "Z $line\$" runs/one/log.txt || complain "log.txt lacks '$line': $(cat runs/one/log.txt)"
done
for line in '^to evaluate: +towers eval runs/one$' '^to continue: .* --resume runs/one and more --epochs$' '^report runs/one/report.html$'; do
    grep -qE "$line" err || complain "the end lacks '$line': $(cat err)"
done
ends 0 "towers         3 x batch 4+0+2 = 12 images per step (gradients of 2 batches accumulated), in" \
    "${train[@]:0:6}" --tower-batch 4,0,2 --accumulate 2 --max-steps 2 --freeze 'conv1*' --experiment header
grep -qE 'parameters \([0-9]+ frozen\)' err && grep -qE '^steps +2 \(--max-steps\), 6 per epoch$' err &&
    grep -qE '^to continue: .* --resume runs/header and a larger --max-steps$' err || complain "header: $(cat err)"

# a report that cannot be written ends no run, and its command is printed
mkdir -p "runs/no page/report.html/taken"
ends 0 "; to write it later: towers report 'runs/no page'" "${train[@]}" --epochs 1 --experiment "no page"

# an epoch's line says whose loss it has where steps show another one; weights to begin with are of no use to a run that goes on
ends 0 "Epoch 1, Loss (mean_loss): " "${train[@]}" --epochs 1 --report-loss last --experiment last
ends 0 "--pretrained runs/one/best.safetensors has no effect" "${train[@]}" --epochs 2 --report-loss last --pretrained runs/one/best.safetensors --resume runs/last

# the time between two steps has a number: an evaluation of 10,000 images before step 5 is in its row, but not in its images per second
small_data "$work/many" 64 10000 || exit $?
ends 0 "run directory" train fashion_cnn --device cpu --data-path "$work/many" -b 16 --epochs 2 --experiment between
sed -nE 's/.*"step":([0-9]+),.*"images":([0-9]+),"images_per_sec":([^,]+),"wall_seconds":([^,]+),.*/\1 \2 \3 \4/p' runs/between/metrics.jsonl |
    awk '$4 < 0.99 * $2 / $3 || $1 == 5 && $4 - $2 / $3 < 0.003 { bad = 1 } END { exit bad || NR != 8 }' ||
    complain "the time between steps: $(grep -oE '"(images|images_per_sec|wall_seconds)":[^,]+' runs/between/metrics.jsonl)"

# a short run has curves in TensorBoard, and both losses of every epoch
cp -r "$work/data" named
printf '%s\n' zero one two three four five six seven eight nine >named/classes.txt
ends 0 "run directory" train fashion_cnn --device cpu --data-path named -b 4 --epochs 2 --experiment curves
for tag in mean_loss=3 train/loss=2 train/accuracy=2 test/loss=2 test/accuracy=2; do
    count=$(grep -aoF "${tag%=*}" runs/curves/events.out.* | wc -l)
    ((count >= ${tag#*=})) || complain "TensorBoard: ${tag%=*} is there $count times"
done

# the confusion matrix is that of best.safetensors, though the last epochs were worse
ends 0 "run directory" train fashion_cnn --device cpu --data-path named -b 4 --epochs 6 --opt sgd --sched piecewise --lr-schedule "0.02;4;1" \
    --nan-policy skip --nan-limit 256 --experiment spoilt
best=$(cut -d, -f6 runs/spoilt/results.csv | sort -g | tail -1) last=$(tail -1 runs/spoilt/results.csv | cut -d, -f6)
of_matrix=$(awk -F, 'NR > 1 { right += $NR; for (i = 2; i <= NF; i++) all += $i } END { print right / all }' runs/spoilt/confusion.csv)
awk -v best="$best" -v last="$last" -v m="$of_matrix" 'BEGIN { d = best - m; exit !(best > last && d * d < 1e-8) }' ||
    complain "best $best, last $last, the matrix has $of_matrix"

# class names travel with an ONNX file; a fifth place says nothing among three classes
ends 0 "ONNX of fashion_cnn" export fashion_cnn curves.onnx --weights runs/curves
grep -aq 'class_names.*\["zero","one",' curves.onnx || complain "curves.onnx has no class names"
ends 0 "Accuracy @ 5" eval runs/curves
awk -F, '{ loss = $5 } NR > 1 && $6 + 0 > best { best = $6 + 0; of_best = sprintf("Loss = %.5f [30 examples]", $5) } END { print of_best }' runs/curves/results.csv >loss
grep -qFf loss out || complain "eval: wanted $(cat loss), got $(cat out)"
# its pictures as files give what the evaluation of the data says of each
ends 0 "Accuracy @ 5" eval runs/curves --errors errors.csv
for ((i = 0; i < 30; i++)); do { printf 'P5 28 28 255\n' && tail -c +$((17 + 784 * i)) named/t10k-images-idx3-ubyte | head -c 784; } >$i.pgm; done
ends 0 "file,rank" predict runs/curves {0..29}.pgm --csv --top 1
awk -F, 'NR == FNR { of[$1] = $3 "," $4; next } FNR > 1 { rows++; if (of["\"" $1 ".pgm\""] != $5 "," $6) bad = 1 } END { exit bad || !rows }' out errors.csv || complain "pictures as files: $(head -3 out errors.csv)"
few=(fashion_cnn --device cpu --dataset synthetic --classes 3 --img-size 12)
ends 0 "run directory" train "${few[@]}" -b 64 --max-steps 2 --experiment few
ends 0 "Accuracy @ 1" eval "${few[@]}" --weights runs/few
! grep -q "@ 5" out || complain "top-5 of three classes: $(cat out)"
ends 0 '"top5": null' eval "${few[@]}" --weights runs/few --json
[[ $(sed -n 2p runs/few/results.csv | cut -d, -f7) == "" ]] || complain "results.csv has a top-5 of three classes"

# color in IDX files, for a network that takes the channels of its data
mkdir -p color
for split in train t10k; do
    { printf '\0\0\010\004\0\0\0\002\0\0\0\034\0\0\0\034\0\0\0\003' && head -c 4704 /dev/zero; } >"color/$split-images-idx4-ubyte"
    printf '\0\0\010\001\0\0\0\002\0\001' >"color/$split-labels-idx1-ubyte"
done
ends 0 "run directory" train fashion_cnn --device cpu --data-path color -b 2 --max-steps 1 --experiment color
sed -i 's/"classes": 10/"classes": 7/' runs/color/env.json
ends 0 " 7 x 1 x 1 " info runs/color --device cpu # its classes and channels are those of its data
grep -qE '^conv1 .* 896 ' out || complain "info of a run on color: $(cat out)"

# where the time goes: no op is faster than the machine, slices that lie in place move nothing, columns on a terminal
ends 0 "effective GFLOP/s" bench inception_mini --device cpu -b 4 --batches 1 --warmup-batches 0 --profile
grep -qE '^\| layer \| op \| output \| kernel \|' out && grep -q '^Kernels not used, and why:' out || complain "the profile names no kernels"
awk -F'|' '/^\|/ && NF > 8 && $(NF - 1) + 0 > 100 { print; bad = 1 } END { exit bad }' out || complain "faster than the machine"
grep -qE '^\| slice \| [0-9]+ \| [0-9.]+ \| [0-9.]+ \| - \| - \| - \| - \|$' out || complain "slices: $(grep '^| slice' out)"
# as JSON there is every op, whose times are those of the table
for more in "" --inference; do
    "$towers" bench inception_mini --device cpu -b 4 --batches 1 --warmup-batches 0 --profile --json $more >out 2>err </dev/null || complain "profile as JSON: $(cat err)"
    ! command -v python3 >/dev/null || python3 - out err <<'PY' || complain "profile as JSON $more: $(cut -c 1-300 out)"
import json, re, sys
profile = json.load(open(sys.argv[1]))["profile"]
text = open(sys.argv[2]).read()
ops, shown = profile["ops"], re.search(r": ([0-9.]+) ms in (\d+) ops; machine peak: (\d+) GFLOP/s", text)
assert len(ops) == int(shown[2]) > 25 and abs(profile["ms"] - float(shown[1])) < 0.006 and abs(profile["peak_gflops"] - float(shown[3])) <= 0.5
assert abs(sum(op["ms"] for op in ops) - profile["ms"]) < 1e-6 and all(op["ms"] > 0 for op in ops)
for op in ops[:25]:  # slowest first, as in the table
    assert f"| {op['layer']} | {op['op']} | {op['output']} | {op['kernel']} | {op['ms']:.3f} |" in text, op
PY
done
if command -v script >/dev/null; then
    script -qec "'$towers' bench inception_mini --device cpu -b 4 --batches 1 --warmup-batches 0 --profile" /dev/null </dev/null >terminal
    grep -qE '^op +calls +ms +share % +effective GFLOP/s' terminal && ! grep -q '^|' terminal || complain "a terminal gets: $(head -20 terminal)"
fi

# before it trains: how long, and what guessing gives; at the end how sure the accuracy is, by Wilson's interval of 30 images
"$towers" "${train[@]}" --epochs 2 --dry-run >out 2>err </dev/null || complain "dry run: $(cat err)"
grep -qE '^guessing +[0-9.]+ % are right if all evaluation images are taken for [^ ].*, the largest( class)?$' out || complain "dry run: no guess: $(cat out)"
grep -qE '^expected +[0-9]+ seconds? of computation, by [1-5] steps of one tower here: [0-9.e-]+ s a step of all, without evaluations' out || complain "dry run: no time: $(cat out)"
awk '/^expected/ { shown = $(2); for (i = 1; i < NF; i++) if ($(i + 1) == "s" && $(i + 2) == "a") step = $i; exit !(shown >= 8 * step && shown <= 8 * step + 1.01) }' out ||
    complain "dry run: 8 steps do not take so long: $(grep ^expected out)"
# an evaluation that computes no numbers has no score, least of all 0 %
ends 0 "the evaluation after step 2 has no score, as its loss is not finite" "${train[@]}" -b 5 --opt sgd --lr 1e6 --sched constant --max-steps 2 --experiment diverged
[[ $(tail -n 1 runs/diverged/results.csv) == 1,2,*,nan,,,* ]] || complain "a score without numbers: $(cat runs/diverged/results.csv)"
[ ! -e runs/diverged/best.safetensors ] || complain "best weights without a score"
"$towers" runs runs/diverged >out 2>err && ! grep -q accuracy out || complain "runs: $(cat out err)"

cp -r "$work/data" noted && touch noted/stray.txt # what a run says of its data and settings before it trains, it says without training
"$towers" "${train[@]}" --data-path noted --epochs 2 --dry-run >out 2>err </dev/null && grep -q "stray.txt" err || complain "dry run: no notes: $(cat err)"
"$towers" "${train[@]}" --data-path noted --epochs 2 --dry-run --quiet >out 2>err </dev/null && ! grep -q . err || complain "dry run --quiet: $(cat err)"
for mixed in "--mixup 0.2 -b 8" "--cutmix 1 --loss bce -b 8" "--accumulate 2 --tower-batch 0,4,2"; do # whose batches have more than images and labels
    "$towers" "${train[@]:0:6}" $mixed --dry-run >out 2>err </dev/null && grep -q '^expected' out || complain "dry run with $mixed: $(tail -n 2 err)"
done
grep -qE '^guessing +' runs/one/log.txt || grep -q 'Z guessing ' runs/one/log.txt || complain "the header has no guess"
"$towers" "${train[@]}" --epochs 1 --experiment sure --json >out 2>err </dev/null
awk -v share="$(sed -n 's/.*"test_accuracy":\([0-9.e-]*\).*/\1/p' out)" '/^test accuracy/ {
    n = 30; z = 1.959964; half = 100 * z * sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    exit !($6 - half < 0.051 && half - $6 < 0.051) }' err || complain "+- of the accuracy: $(grep '^test accuracy' err)"
# where it takes minutes, its first steps say how many
timeout -s INT 60 env TOWERS_FAULT=delay:tower=0,step=1,ms=900 "$towers" "${train[@]}" --epochs 1000 --experiment long 2>err >out </dev/null &
wait_until grep -q '^expected' err
kill -INT $!
wait $!
grep -qE '^expected +[0-9.]+ (minutes|hours) more, by the first [0-9]+ steps$' err || complain "a long run does not say how long: $(head -n 20 err)"

# --quiet: the result and nothing else; with --json, that alone
"$towers" "${train[@]}" --epochs 1 --experiment quiet --quiet >out 2>err </dev/null
[[ $(sed -E 's/[0-9.]+ %/N %/g; s/(\+-) [0-9.]+/\1 N/' err) == $'test accuracy N % +- N (best epoch N %)\nrun directory runs/quiet' && ! -s out ]] || complain "--quiet: $(cat out err)"
"$towers" "${train[@]}" --epochs 1 --experiment quiet2 --quiet --json >out 2>err </dev/null
[[ ! -s err && $(cat out) == '{"run_dir":"runs/quiet2"'* ]] || complain "--quiet --json: $(cat out err)"

# a run in the place of a model: its model, image size, classes, data and weights
ends 0 "[30 examples]" eval runs/one --device cpu
cp out by_run
ends 0 "[30 examples]" eval fashion_cnn --weights runs/one --data-path "$work/data" --img-size 20 --classes 12 --device cpu
cmp -s out by_run || complain "eval RUN: $(cat by_run), eval MODEL: $(cat out)"
ends 0 "12 classes" export runs/one
ends 0 "12 x 1 x 1" info runs/one --device cpu
cp -r "$work/data" "$work/other"
ends 0 "data-path: \"$work/other\"" eval runs/one --data-path "$work/other" --data-path "$work/other" --print-config
ends 2 "--data-path has no effect with --dataset synthetic" eval runs/one --data-path "$work/data" --dataset synthetic
cp -r runs/one runs/usual # a run that found its data at their usual place, and one whose args.yaml could not name them
sed -i 's/^data-path: .*/# data-path: not set/' runs/usual/args.yaml
"$towers" eval runs/usual --match-classes number --print-config 2>&1 | grep -q '^dataset: fmnist\|^towers: no data: --data-path was not given' || complain "the usual data"
# settings that were lost in part are no defaults
cp -r runs/one runs/cut
for bytes in 0 900; do
    head -c $bytes runs/one/args.yaml >runs/cut/args.yaml
    for command in eval "predict runs/cut $work/data" export "train fashion_cnn --resume runs/cut" card "compare runs/one"; do
        [[ $command == *runs/cut* ]] || command+=" runs/cut"
        ends 3 "runs/cut/args.yaml is $([[ $bytes == 0 ]] && echo empty || echo cut short)" $command
    done
    ends 0 "runs/cut/args.yaml is" runs runs/cut
done
sed '1,/^quiet:/d; /^[#]* *\(towers-view\|color\):/d' runs/one/args.yaml >rest # a cut behind it loses nothing that decides a result
[ ! -s rest ] || complain "settings stand behind 'quiet', by which a whole file is known: $(cat rest)"
cp -r data $'data\377'
ends 0 "run directory" train fashion_cnn --device cpu --data-path $'data\377' -b 16 --max-steps 1 --experiment bytes
ends 2 "no data given: towers eval finds the data of a run only where its args.yaml names them" eval runs/bytes
ends 0 "[30 examples]" eval runs/bytes --data-path data
ends 2 "only the weights are used; give it in place of fashion_cnn for its data, too: towers eval runs/one, or" eval fashion_cnn --weights runs/one
ends 0 "run directory" train fashion_cnn --device cpu --dataset synthetic -b 16 --max-steps 1 --eval-interval 0 --classes 10 --experiment synthetic
ends 0 "[30 examples]" eval runs/synthetic --data-path data
ends 2 "--data-path has no effect with --dataset synthetic" eval runs/synthetic --data-path data --dataset synthetic
ends 2 "has no env.json" eval "$work/data"
ends 2 "cannot open the run 'runs/two': No such file or directory" eval runs/two
ends 2 "unknown model 'fashion_cn'; did you mean fashion_cnn?" eval fashion_cn
ends 2 "and there is no run directory 'elsewhere' here" eval elsewhere
ends 2 "'one' is neither a model nor a run; did you mean runs/one?" eval one
echo '{}' >notes.json
ends 4 "'notes.json' has 3 bytes: too short for a safetensors file" export notes.json
ends 0 "safetensors of fashion_cnn, 12 classes, from runs/one/last.safetensors" export runs/one/last.safetensors
ln -s runs/one/last.safetensors link.safetensors
for name in runs/one/./last.safetensors link.safetensors; do
    ends 2 "export: $name and runs/one/last.safetensors are the same file" export runs/one/last.safetensors $name
done
[[ -L link.safetensors ]] || complain "export replaced a link to its source"
mkdir fashion_cnn # a folder that is called as a model does not stand in its way
ends 2 "eval needs weights" eval fashion_cnn
echo '{}' >runs/one/env.json
ends 2 "has no env.json" eval runs/one
for name in a.pth a.txt of-a-run; do
    ends 2 "the extension of $name names no format that is written here; name the file .safetensors or .onnx" export fashion_cnn $name --weights runs/one
    [[ ! -e $name ]] || complain "export wrote $name"
done

# from a run, on in a run
ends 0 "run directory runs/two" "${train[@]}" --epochs 1 --experiment two --pretrained runs/one
ends 4 "contains no weights" "${train[@]}" --epochs 1 --experiment three --pretrained "$work/data"
ends 0 "all steps are done" "${train[@]}" --epochs 1 --resume runs/two
ends 2 "runs/one is already at step 4, but --epochs and --max-steps end the run at step 3" "${train[@]}" --max-steps 3 --resume runs/one
ends 2 "then nothing, now epochs: 2" "${train[@]}" --epochs 2 --resume runs/two --sched cosine
ends 0 "run directory runs/short" "${train[@]}" --towers 2 --max-steps 2 --eval-interval 0 --sched cosine --experiment short
ends 2 "then max-steps: 2, now max-steps: 5" "${train[@]}" --towers 2 --max-steps 5 --resume runs/short --sched cosine
ends 2 "then img-size: 20, now img-size: 24" train fashion_cnn --device cpu --data-path "$work/data" --resume runs/short --img-size 24

# of a run that is too short to say anything, nothing is said in numbers
ends 0 "too few steps" compare runs/short runs/one
grep -nwE -- '[-+]?(nan|inf)' out && complain "compare prints numbers that are none"
ends 0 "run directory runs/none" "${train[@]}" --epochs 0 --experiment none
grep -q 'no report' err && complain "--epochs 0: $(cat err)"

# help speaks of files of options where there are some
ends 0 "in --config FILE" eval --help
ends 0 "Options can also be set in the environment" compare --help

# a benchmark counts what it times, without the warm-up
ends 0 "Num batches: 3" bench fashion_cnn --device cpu -b 4 --batches 3 --warmup-batches 1
ends 0 "jitter = scatter of single steps" bench fashion_cnn --device cpu -b 4 --batches 1 --warmup-batches 0
ends 0 "1 tower in 1 process on cpu" bench fashion_cnn --device cpu -b 4 --batches 1 --warmup-batches 0

# results that nobody can read are a failure, a console that nobody reads is none
"$towers" eval fashion_cnn --weights runs/two --data-path "$work/data" --img-size 20 --classes 12 --device cpu >&- 2>err
[[ $? == 6 ]] || complain "eval with a closed standard output is no failure: $(cat err)"
"$towers" "${train[@]}" --epochs 1 --experiment closed <&- >&- 2>&- || complain "train with nothing open"

# a limit of file sizes is a failure to store, not the end of a tower
(ulimit -f 100 && ends 6 "File too large" "${train[@]}" --epochs 1 --experiment limited && ((failures == 0))) || failures=$((failures + 1))

# as a user who may not look: why, not what is not there
if [[ $(id -u) == 0 ]] && command -v setpriv >/dev/null; then
    chmod 755 "$work" && mkdir -m 700 closed && cp "$work"/data/* closed/
    setpriv --reuid=65534 --regid=65534 --clear-groups "$towers" train fashion_cnn --device cpu --data-path "$work/closed" --dry-run >out 2>err
    [[ $? == 2 ]] && grep -q "Permission denied" err || complain "a folder that may not be read: $(cat out err)"
fi

check_end "a run's folder is enough"
