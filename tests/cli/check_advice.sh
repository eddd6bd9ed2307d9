#!/usr/bin/env bash
# Advice that was tried: a command that is refused with "use --this VALUE" works when the advice is followed, word by word. And commands that a
# message prints to be run, such as those at the end of a run, run. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
small_data data 400 100

# follow ADVICE COMMAND...: the command with "--option VALUE" in the place of that option, or at its end; RUN, FILE and DIR are things that exist
follow() {
    local option=${1%% *} value=${1#"${1%% *}"} i changed=no
    value=${value# }
    value=${value/#RUN/runs/first} value=${value/#FILE/runs/first/best.safetensors} value=${value/#DIR/data}
    followed=("${@:2}")
    for ((i = 0; i < ${#followed[@]}; i++)); do
        [[ ${followed[i]} == "$option" ]] || continue
        followed[i + 1]=$value changed=yes
    done
    [ $changed = yes ] || followed+=("$option" ${value:+"$value"})
    "$towers" "${followed[@]}" >out 2>err </dev/null || complain "followed the advice of '${*:2}': towers ${followed[*]}: $(tail -n 1 err)"
}

# advised COUNT COMMAND...: the command is refused; each of at least so many things that the message says to use works
advised() {
    local count=$1 tried=0 advice
    shift
    "$towers" "$@" >out 2>err </dev/null && { complain "not refused: $*"; return; }
    grep -oP '(?:use|give|add|try|or) \K--[a-z-]+(?: (?!(?:or|and|for|instead)\b)[^ ,;()]+)?' <(tail -n 1 err) >advice
    while read -r advice; do
        follow "$advice" "$@"
        tried=$((tried + 1))
    done <advice
    ((tried >= count)) || complain "wanted $count pieces of advice, found $tried: $(tail -n 1 err)"
}

# runs_as_printed PATTERN: the commands "towers ..." on lines that match it, in $printed, with OTHER_RUN replaced
runs_as_printed() {
    local line count=0
    while read -r line; do
        eval "set -- ${line//OTHER_RUN/runs/first}"
        "$towers" "$@" >out 2>err </dev/null || complain "printed, but does not run: towers $*: $(tail -n 1 err)"
        count=$((count + 1))
    done < <(grep -E "$1" printed | grep -oP 'towers \K(?:train|eval|export|compare|generate|report|data|info) .*')
    ((count > 0)) || complain "no command to run on a line with '$1': $(cat printed)"
}

train=(train fashion_cnn --data-path data --device cpu --threads 1)
"$towers" "${train[@]}" --max-steps 4 --experiment first >printed 2>&1 </dev/null || complain "first: $(tail -n 3 printed)"
runs_as_printed '^to (evaluate|export|compare)'

advised 1 "${train[@]}" --dry-run --stop-at 90
advised 1 "${train[@]}" --dry-run --classes 4
advised 1 "${train[@]}" --dry-run --towers 1000 -b 1
advised 1 "${train[@]}" --dry-run --towers 2 --batch-size 1000
advised 2 "${train[@]}" --dry-run --towers 4 --processes 2 --bn-stats sync
advised 1 "${train[@]}" --dry-run --patience 2 --monitor kid
advised 2 train inception_v3 --dry-run --device cpu
advised 2 eval fashion_cnn --data-path data --device cpu
advised 2 export fashion_cnn model.onnx
advised 1 bench fashion_cnn --device cpu --threads 1 --batches 3 --warmup-batches 1 --scaling --towers 1 --batch-size 8

# Every option that a message, a help text or an example names is one that towers has, unless it belongs to another program.
python3 - "$source_dir" "$towers" <<'PYTHON' || complain "options that do not exist"
import json, os, re, subprocess, sys
source, towers = sys.argv[1:]
known = set()
for option in json.loads(subprocess.run([towers, "man", "--json"], check=True, capture_output=True, text=True).stdout)["options"]:
    for name in [option["flag"], *option.get("aliases", "").replace(",", " ").split()]:
        known |= {name, "no-" + name} # any flag can be turned off
# Of mpirun, srun, tar, docker, a browser, a style sheet, of every command, in examples of what is no option; --amp takes a type.
others = set("""mpi host sparse hard-dereference dereference cpus memory shm-size ulimit cpuset-cpus screenshot headless no-sandbox disable-gpu
    hide-scrollbars force-device-scale-factor window-size size c lr-gamma flag no-flag markdown no- help help-all version share""".split())
bad = []
for floor in ("kernels", "nccl_sync", "towers", "inception"):
    for folder, _, names in os.walk(os.path.join(source, floor)):
        for name in names:
            if not name.endswith((".c", ".h", ".def")):
                continue
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
            for string in re.findall(r'"((?:\\.|[^"\\\n])*)"', text):
                bad += [(name, option) for option in re.findall(r"(?<![\w-])--([a-z][a-z0-9-]*)", string) if option not in known | others]
assert len(known) > 150, len(known)
assert not bad, bad
PYTHON
check_end "advice that is followed works, and every option that a message names exists"
