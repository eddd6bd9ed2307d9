#!/usr/bin/env bash
# The command line from outside: every mistake exits with 2 and advice on stderr, prints nothing on stdout and creates nothing;
# help, manual and completions are complete and generated from the table. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
mkdir "$work/empty" "$work/files"
cd "$work/empty" || exit 1

# refused TEXT ARGUMENT...: exit 2, TEXT in the message, empty stdout, an empty folder
refused() { refused_with 2 "$@"; }

# refused_with STATUS TEXT ARGUMENT...
refused_with() {
    local wanted=$1 text=$2 status
    shift 2
    timeout 200 "$towers" "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    [[ $status == "$wanted" ]] || complain "towers $*: exit $status instead of $wanted: $(cat "$work/err")"
    grep -qF -- "$text" "$work/err" || complain "towers $*: wanted '$text', got: $(cat "$work/err")"
    [[ ! -s $work/out ]] || complain "towers $*: wrote to stdout: $(head -3 "$work/out")"
    [[ -z $(ls -A .) ]] || complain "towers $*: created $(ls -A .)"
    rm -rf ./*
}

# shown TEXT ARGUMENT...: exit 0, TEXT on stdout, nothing on stderr
shown() {
    local text=$1 status
    shift
    timeout 200 "$towers" "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    [[ $status == 0 ]] || complain "towers $*: exit $status instead of 0: $(cat "$work/err")"
    grep -qF -- "$text" "$work/out" || complain "towers $*: wanted '$text' in: $(head -5 "$work/out")"
    [[ ! -s $work/err ]] || complain "towers $*: wrote to stderr: $(head -3 "$work/err")"
}

model=fashion_cnn

refused "did you mean --batch-size?" train $model --batchsize 3
refused "did you mean --batch-size?" train $model --batch_sise=3
refused "is not an option" train $model --frobnicate
refused "the commands that have it: bench" train $model --batches 3
refused "needs a value" train $model --batch-size
refused "needs a value" train $model --lr --epochs 1
refused "is not a number" train $model --lr 1e
refused "expected one number or three with commas" train $model --mean 0.5,0.5,0.5,
refused "expected one number or three with commas" train $model --mean "0.5, "
refused "is not a number" train $model --lr nan
refused "is not a number" train $model --lr 0,5
refused "out of range" train $model --lr 1e999
refused "out of range" train $model --batch-size -5
refused "out of range" train $model --batch-size 99999999999999999999
refused "not a whole number" train $model --epochs 1.5
refused "did you mean adam?" train $model --opt adm
refused "exclude each other" train $model --batch-size 8 --global-batch-size 16
refused "--hflip has no effect without --augment" train $model --hflip 0.5
refused "is longer than 3000 bytes" train $model --output-dir "$(printf 'y/%.0s' {1..2000})"
refused "unexpected argument" train $model other
refused "did you mean 'train'?" trian $model
TOWERS_LRR=3 refused "did you mean --lr?" train $model
refused "did you mean fashion_cnn?" train fashion_cn
refused "did you mean inception_v3?" info inceptionv3
refused "did you mean inception_v3?" info Inception-V3
refused "usage: towers COMMAND [OPTIONS]" -h train
refused "no image given; usage: towers predict" predict runs/first
TOWERS_LR=1e refused "TOWERS_LR: '1e'" train $model
for home in '~' '~/runs'; do # as files, variables and --flag=~/... have it
    refused "--output-dir: nobody has replaced the '~' of '$home' by your home folder" train $model "--output-dir=$home"
    TOWERS_DATA_PATH=$home refused "TOWERS_DATA_PATH: nobody has replaced the '~'" train $model
    echo "pretrained: '$home'" >"$work/home.yaml"
    refused "nobody has replaced the '~' of '$home'" train $model --config "$work/home.yaml"
done
TOWERS_BATCH_SIE=8 refused "--batch-size" train $model

# what cannot fit into memory is refused at once
if "$towers" info $model --device cpu >"$work/out" 2>&1; then
    refused_with 5 "GiB are free; try a smaller batch" bench inception_v3 --device cpu -b 65536 --towers 256
    refused_with 5 "GiB of memory, but only" train inception_v3 --device cpu --img-size 4096 --dataset synthetic
    refused_with 5 "GiB of memory, but only" train inception_v3 --device cpu -b 4096 --dataset synthetic --dry-run
fi

# the newest release of the changelog is the version of the program, below a heading for what comes next
released=$(sed -n 's/^## \[\(.*\)\].*/\1/p' "$source_dir/CHANGELOG.md" | head -n 2 | tr '\n' ' ')
[[ $released == "Unreleased $("$towers" --version | sed -n '1s/^towers \([0-9.]*\).*/\1/p') " ]] || complain "CHANGELOG.md begins with: $released"

# which kernel computes a layer, and why others do not; the total is where scripts look for it
if "$towers" info $model --device cpu --kernels >"$work/out" 2>&1; then
    grep -qE '^fc1 +dense .* oneDNN, product \(' "$work/out" && grep -qE '^conv1.dw +conv_dw .* oneDNN, .* in [0-9]+ parts$' "$work/out" ||
        complain "--kernels: $(grep -E '^(fc1|conv1)' "$work/out")"
    grep -qE '^    passed over: .*F\(4, 7\): window is not 1x7 or 7x1' "$work/out" || { [ "$(uname -m)" = x86_64 ] && complain "--kernels gives no reasons"; }
    grep -q '^total, forward pass of one image ' "$work/out" && [ "$(grep -l 'total, forward pass of one image' "$1"/scripts/{measure,parity}/*.py | wc -l)" = 3 ] ||
        complain "bench_cpu.py, fidelity.py and time_to_accuracy.py look for another line of towers info"
fi

# settings that contradict each other, and advice that can be followed
if "$towers" info $model --device cpu >"$work/out" 2>&1; then
    set -- train $model --device cpu --dataset synthetic
    refused "--warmup-epochs 20 does not end before --epochs 10" "$@" --warmup-epochs 20 --epochs 10
    printf 'warmup_epochs: 20\nepochs: 10\n' >"$work/long.yaml" # as in the args.yaml of a run whose recipe says so
    "$towers" "$@" --config "$work/long.yaml" --dry-run >/dev/null 2>"$work/err" ||
        complain "a long warm-up of a file is refused: $(cat "$work/err")"
    refused "--min-lr 0.1 is above --lr 0.01" "$@" --sched cosine --lr 0.01 --min-lr 0.1
    refused "--warmup-lr 0.5 is above --lr 0.1" "$@" --lr 0.1 --warmup-epochs 1 --warmup-lr 0.5
    refused "--warmup-lr 0.5 is above the first rate of --lr-schedule 0.4" "$@" --lr 1 --sched piecewise --lr-schedule '0.4;1;2' --warmup-epochs 1 --warmup-lr 0.5
    # fault: F20
    refused "is not divisible by 2 towers; use 2," "$@" --towers 2 --global-batch-size 1
    refused "is not divisible by 2 towers; use 8 or 10," "$@" --towers 2 --global-batch-size 9
    refused "use --batch-size 2048 or less (for each of 2 towers)" "$@" --towers 2 -b 2049
    # 60 samples of 28 x 28 to train on, tests of 7 x 5
    idx() { printf '\0\0\010'"\\$1"; shift; for word; do printf '\0\0\0'"\\$(printf %03o "$word")"; done; }
    mkdir "$work/files/odd"
    { idx 003 60 28 28; head -c $((60 * 784)) /dev/zero; } >"$work/files/odd/train-images-idx3-ubyte"
    { idx 001 60; head -c 60 /dev/zero; } >"$work/files/odd/train-labels-idx1-ubyte"
    { idx 003 20 5 7; head -c $((20 * 35)) /dev/zero; } >"$work/files/odd/t10k-images-idx3-ubyte"
    { idx 001 20; head -c 20 /dev/zero; } >"$work/files/odd/t10k-labels-idx1-ubyte"
    refused_with 3 "the training images are 28 x 28 with 1 channel(s), but the test images are 7 x 5 with 1" \
        train $model --device cpu --data-path "$work/files/odd"
    { idx 003 20 28 28; head -c $((20 * 784)) /dev/zero; } >"$work/files/odd/t10k-images-idx3-ubyte"
    # fault: F19
    refused "61 towers cannot share a training set of 60 samples; use --towers 60 or less" \
        train $model --device cpu --data-path "$work/files/odd" --towers 61 -b 1
fi

# configured PLACE TEXT YAML: the file is refused at PLACE (line:column), because of TEXT
configured() {
    printf '%b' "$3" >"$work/files/c.yaml"
    refused "$work/files/c.yaml:$1: " train $model -c "$work/files/c.yaml"
    grep -qF -- "$2" "$work/err" || complain "config '$3': wanted '$2', got: $(cat "$work/err")"
}

configured 1:1 "did you mean batch-size?" 'batch-sise: 8\n'
configured 2:9 "'x' is not a whole number" 'lr: 1\nepochs: x\n'
configured 1:4 "tabs are not allowed" 'lr:\t1\n'
configured 3:1 "is set twice, first in line 1" 'lr: 1\n\nlr: 2\n'
configured 1:4 "nested mappings are not" 'a: {b: 1}\n'
configured 1:4 "anchors (&name) are not" 'a: &a x\nb: *a\n'
configured 1:4 "lists in [] or" 'a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n'
configured 1:4 "lists in [] or" 'a: [x, x]\nb: [*a, *a]\n'
configured 2:4 "aliases (*name) are not" 'lr: 1\na: *x\n'
configured 1:5 "tags (!name) are not" 'lr: !!float 1\n'
configured 2:1 "a second document" 'lr: 1\n---\nlr: 2\n'
yes 'lr: 1' | head -c 10000000 >"$work/files/large.yaml"
refused "larger than" train $model --config "$work/files/large.yaml"
refused "No such file" train $model --config "$work/files/missing.yaml"
refused "not a regular file" train $model --config "$work/files"

# help of every command: one screen, 80 columns; it comes even with a broken environment
shown "Commands:" --help
shown "Commands:" help
for verb in train eval info bench export compare report replay doctor help version; do
    if ! "$towers" --help | grep -q "^  $verb "; then
        [[ $verb =~ ^(train|eval|info|bench|doctor)$ ]] && complain "towers --help has no '$verb'"
        continue # taken out of the table
    fi
    COLUMNS=80 shown "towers $verb" $verb --help
    [[ $(wc -l <"$work/out") -le 45 ]] || complain "towers $verb --help is longer than a screen"
    [[ -z $(awk 'length > 80' "$work/out") ]] || complain "towers $verb --help is wider than 80 columns"
    shown "towers $verb" $verb --help-all
done
TOWERS_LR=1e shown "--batch-size" train --help
TOWERS_LR=1e shown "--batch-size" train --help-debug

# one table, several dresses: every flag of --help-debug is in the manual, the pages and the completions
options_listed >"$work/md"
for shell in bash zsh fish; do "$towers" completion $shell >"$work/$shell" || complain "towers completion $shell"; done
for verb in train eval info bench; do
    "$towers" man $verb >"$work/man" || complain "towers man $verb"
    for flag in $("$towers" $verb --help-debug | grep -oE '^ {2}(-.,|   ) --[][a-z0-9-]+' | grep -oE '\-\-.*'); do
        flag=${flag#--} flag=${flag#\[no-\]}
        grep -qE -- "--(\[no-\])?$flag\b" "$work/md" || complain "--$flag is in no page"
        sed 's/\\-/-/g' "$work/man" | grep -qE -- "--(\[no-\])?$flag\b" || complain "--$flag is not in the manual"
        grep -q -- "--$flag\b" "$work/bash" || complain "--$flag is not completed in bash"
        grep -q -- "--$flag\b" "$work/zsh" || complain "--$flag is not completed in zsh"
        grep -q -- "-l $flag\b" "$work/fish" || complain "--$flag is not completed in fish"
    done
done
[[ $(grep -c . "$work/md") -gt 50 ]] || complain "the Markdown is too short"
bash -n "$work/bash" || complain "the bash completion is not bash"
bash -c '. "$1"; COMP_WORDS=(towers train --batch-s) COMP_CWORD=2; _towers; [[ ${COMPREPLY[*]} == --batch-size ]]' _ "$work/bash" ||
    complain "bash does not complete --batch-s"
bash -c '. "$1"; COMP_WORDS=(towers train fashion_) COMP_CWORD=2; _towers; [[ ${COMPREPLY[*]} == fashion_cnn ]]' _ "$work/bash" ||
    complain "bash does not complete the model's name"
bash -c '. "$1"; COMP_WORDS=(towers data con) COMP_CWORD=2; _towers; [[ ${COMPREPLY[*]} == convert ]]' _ "$work/bash" ||
    complain "bash does not complete what 'towers data' can do"
bash -c '. "$1"; COMP_WORDS=(towers train fashion_cnn --recipe tf20) COMP_CWORD=4; _towers; [[ ${COMPREPLY[*]} == tf2016 ]]' _ "$work/bash" ||
    complain "bash does not complete the recipe's name"
for shell in zsh fish; do grep -q 'keras mini mlperf-lars' "$work/$shell" || complain "$shell knows no recipes"; done

# the commit, which a build without git does not know, and flags of other trainers that no option equals
[[ ! -e $source_dir/.git ]] || ! command -v git >/dev/null || "$towers" version | grep -q ', commit [0-9a-f]\{12\}' || complain "towers version does not name the commit"
# what the build has, whatever the machine is; then what the machine lets it use
"$towers" version >"$work/out"
head -n 1 "$work/out" | grep -qE "^towers [0-9.]+ (cpu|cuda|cpu cuda)(,|\$)" || complain "towers version begins: $(head -n 1 "$work/out")"
for part in cpu cuda mpi reads; do [ "$(grep -cE "^$part +[^ ]" "$work/out")" = 1 ] || complain "towers version does not say what $part is here: $(cat "$work/out")"; done

# GPUs as people ask for them, where there is none for the run
for gpus in all 4 0,1; do
    refuses 5 "--gpus has no effect because the run would use the CPU: --device cpu" "$towers" train fashion_cnn --dataset synthetic --device cpu --gpus $gpus
done
refuses 2 "'many' is not a whole number (0 to 1023)" "$towers" train fashion_cnn --dataset synthetic --gpus many
if "$towers" train fashion_cnn --dataset synthetic --dry-run --device cpu 2>/dev/null >&2 && ! "$towers" version | grep -q '^cuda .*GPU'; then
    refuses 5 "--gpus has no effect because the run would use the CPU: " "$towers" train fashion_cnn --dataset synthetic --gpus 0
    grep -q 'on the CPU: there is no GPU' < <("$towers" doctor) || complain "doctor does not say that training is on the CPU"
fi
refused "the model is the first argument" train --model fashion_cnn
refused "--experiment NAME names the run" train fashion_cnn --name first
refused "--bn-stats sync is synchronized batch norm" train fashion_cnn --sync-bn
refused "--bn-stats sync is synchronized batch norm" train fashion_cnn --sync_bn

# options of some models only, and those that serve only to compare
shown "--smoothing" train --help-all
grep -qE -- '--(critic-steps|winograd-f32)' "$work/out" && complain "towers train --help-all shows options of GANs or for comparisons"
shown "--critic-steps" train wgan_gp --help-all
grep -q -- --smoothing "$work/out" && complain "towers train wgan_gp --help-all shows options of classifiers"
shown "--[no-]winograd-f32" train --help-debug
for flag in augment img-size reset-head freeze weight-decay; do shown "--$flag" train --help; done
shown "Commands:"
for shell in bash zsh fish; do grep -q 'inception_v3 .*fashion_cnn\|fashion_cnn .*inception_v3' "$work/$shell" || complain "$shell knows no models"; done
if command -v zsh >/dev/null; then zsh -n "$work/zsh" || complain "the zsh completion is not zsh"; fi
if command -v fish >/dev/null; then fish -n "$work/fish" || complain "the fish completion is not fish"; fi
refused "one of bash, zsh, fish" completion tcsh
refused "no shell given" completion
refused "s3://... is the address of a store" train $model --dataset synthetic --output-dir s3://bucket/runs
refused "gs://... is the address of a store" train $model --data-path gs://bucket/set
refused "https://... is the address of a store" data convert photos https://host/set.tar
refused "https://... is the address of a store" predict https://host/run photos
refused "that is --sched step --decay-epochs 1" train $model --lr-scheduler exponentiallr
refused "(1 to 4096)" train $model --towers 4097
refused "control character" train $model --experiment $'a\nb'
refused "--json is for a file of weights" info --json
refused "--amp-dtype has no effect without --amp" replay nothing --amp-dtype fp16
refused "--profile has no effect with --scaling" bench $model --scaling --towers 2 --profile

# --print-config reads back to itself
printf 'batch-size: 8\ndeterministic: true\n' >"$work/files/c.yaml"
TOWERS_CLASSES=7 shown "from file" info $model -c "$work/files/c.yaml" --img-size 28 --print-config
grep -q '^classes: 7 .*# from environment "TOWERS_CLASSES"' "$work/out" || complain "the origin of classes: $(cat "$work/out")"
grep -q '^img-size: 28 .*# from command line "--img-size"' "$work/out" || complain "the origin of img-size"
cp "$work/out" "$work/files/first.yaml"
shown "batch-size: 8" info $model -c "$work/files/first.yaml" --print-config
diff <(sed 's/ *# from .*//' "$work/files/first.yaml") <(sed 's/ *# from .*//' "$work/out") || complain "--print-config does not read back"
shown "batch-size: 64" train $model --print-config # of pairs that exclude each other, neither side is given here, and one each there
cp "$work/out" "$work/files/first.yaml"
shown "batch-size: 64" train $model -c "$work/files/first.yaml" --print-config
diff <(sed 's/ *# from .*//' "$work/files/first.yaml") <(sed 's/ *# from .*//' "$work/out") || complain "--print-config of train does not read back"
shown "reduce: ordered" train $model --print-config
if python3 -c 'import yaml' 2>/dev/null; then # as PyYAML reads it: numbers are numbers, true and false are flags, everything else is text
    shown "lr: 1.0e-05" train $model --lr 1e-5 --nan-check off --tower-batch 32,32 --towers 2 --sched exponential --print-config
    python3 - "$work/out" <<'PYTHON' || complain "PyYAML reads --print-config otherwise"
import re, sys, yaml
for key, text in re.findall(r"^([a-z-]+): (.+?) +# from ", open(sys.argv[1]).read(), re.M):
    value = yaml.safe_load(f"{key}: {text}")[key]
    number = re.fullmatch(r"[-+0-9.e]*[0-9]", text)
    wanted = (int, float) if number else bool if text in ("true", "false") else str
    if not isinstance(value, wanted) or isinstance(value, bool) != (wanted is bool):
        sys.exit(f"{key}: {text} is {value!r}")
PYTHON
fi

# printed ARGUMENT...: ends as by SIGPIPE and says nothing when the reader has left before the first line, also where that signal
# was ignored; but a full disk is an error
printed() {
    local ignored status
    for ignored in no yes; do
        exec 3> >(:)
        wait $! # a pipe that nobody reads
        (
            [[ $ignored == no ]] || trap '' PIPE
            exec timeout 200 "$towers" "$@" 2>"$work/err" >&3 </dev/null
        )
        status=$?
        exec 3>&-
        [[ $status == 141 ]] || complain "towers $*, unread (SIGPIPE ignored: $ignored): exit $status instead of 141: $(cat "$work/err")"
        [[ ! -s $work/err ]] || complain "towers $*, unread: said $(cat "$work/err")"
    done
    timeout 200 "$towers" "$@" >/dev/full 2>"$work/err" </dev/null
    status=$?
    [[ $status == 6 ]] || complain "towers $*, disk full: exit $status instead of 6: $(cat "$work/err")"
    grep -q 'cannot write' "$work/err" || complain "towers $*, disk full: said $(cat "$work/err")"
}

for command in --help --help-all --version models "info $model" "info $model --ops" "info $model --kernels" "train $model --print-config" doctor "doctor --json" man "completion bash"; do
    # shellcheck disable=SC2086
    printed $command
done
if "$towers" info $model --device cpu >"$work/out" 2>&1; then
    small=(bench $model --device cpu --towers 1 --threads 1 -b 1)
    cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc) tiny=("${small[@]}" --batches 2 --warmup-batches 0)
    "$towers" "${tiny[@]}" --threads "$cores" >/dev/null 2>"$work/err" </dev/null
    [[ $? == 0 && ! -s $work/err ]] || complain "as many threads as cores: $(cat "$work/err")"
    "$towers" "${tiny[@]}" --threads $((cores + 1)) >/dev/null 2>"$work/err" </dev/null
    [[ $? == 0 && $(cat "$work/err") == "warning: --threads $((cores + 1)) in 1 process exceeds the $cores available core"*"try --threads $cores or"* ]] ||
        complain "more threads than cores: $(cat "$work/err")"
    core=$(taskset -pc $$ | sed -E 's/.*: ([0-9]+).*/\1/') # what a cpuset leaves is what there is
    taskset -c "$core" "$towers" bench $model --device cpu -b 1 --towers 1 --batches 2 --warmup-batches 0 >"$work/out" 2>"$work/err" </dev/null
    grep -q ' on cpu, 1 thread each' "$work/out" || complain "on one core: $(cat "$work/out" "$work/err")"
    printed "${small[@]}" --batches 2 --json
    "$towers" "${small[@]}" --batches 1000000 --log-interval 1 2>"$work/err" </dev/null | head -n 1 >"$work/out"
    [[ ${PIPESTATUS[0]} == 141 && $(cat "$work/out") == Model:* && ! -s $work/err ]] || complain "bench | head: $(cat "$work/err")"
fi

# Several programs of a launcher share a stream: a message is one write, so that lines of others do not tear it. A read from a
# pipe of packets returns one write.
python3 - "$towers" <<'PYTHON' || complain "messages are written in pieces"
import os, subprocess, sys
ours, theirs = os.pipe2(os.O_DIRECT)
program = subprocess.Popen([sys.argv[1], "train", "fashion_cnn", "--data-path", "/nothing"], stderr=theirs)
os.close(theirs)
writes = list(iter(lambda: os.read(ours, 1 << 16), b""))
print(writes[:4])
sys.exit(program.wait() == 0 or not writes or not all(text.endswith(b"\n") for text in writes))
PYTHON

# Only commands that compute start themselves again, to make idle threads wait for a short time only; LD_DEBUG shows starts.
starts() { (unset GOMP_SPINCOUNT OMP_WAIT_POLICY && LD_DEBUG=statistics exec "$towers" "$@") 2>&1 >/dev/null </dev/null | grep -c 'total startup time'; }
for command in version help "info --model fashion_cnn" "train --help" "train --threads 1 --data-path /nothing"; do
    # shellcheck disable=SC2086
    [[ $(starts $command) == 1 ]] || complain "towers $command starts itself again"
done

[[ -z $(ls -A .) ]] || complain "something was created: $(ls -A .)"
check_end "the command line holds"
