#!/usr/bin/env bash
# Count the lines of the sources (C, headers, CUDA, tables; no tests) of each room of one commit or two, and their rooms, arrows,
# circles and largest room (tests/support/check_map.py of this checkout).
# usage: scripts/pages/count_lines.sh [COMMIT [COMMIT]]      default: the commit that is checked out
#        scripts/pages/count_lines.sh --why COMMIT [COMMIT]  what the lines between two commits were for, by the subjects of the commits
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/setup.sh python

# Rows of --why: a commit belongs to the first whose expression its subject matches. A feature did not exist before; what is
# fixed existed and failed.
why() {
    cat <<'END'
feature;files of weights that say what they are, and are fetched;^(store: let files of weights|job: compare --pretrained|models: fetch)
feature;sweeps;^sweep:
feature;files of torch.save, read without Python;^store: (read what torch|read the weights that PyTorch|number the outputs)
feature;folds, learning rates found by a sweep of steps;^(data: divide training|lr-find[:,])
feature;list of runs, settings that differ, model card;^(compare: list|card:)
feature;GPUs watched by NVML;^(train: read the GPUs|cuda: watch slices)
feature;curves of sweeps, of several runs and of GPUs in reports;^report: (draw a sweep|lay the curves|plot what the GPUs|lead from the page)
feature;scores of two classes, calibration, mirror images, class maps;^(eval: (print|average|fit|draw)|predict: draw|report: draw reliability)
feature;stopping by evaluations, outcome of a run;^(train: one table of epoch|train: compare the plateau|docs: say that a run which)
feature;batch norms folded into convolutions, bench --inference;^(graph: fold batch|bench: time forward)
feature;libtowers;^library:
feature;max pools that normalize what they read;^graph: normalize inside
feature;hosts that prove to know the secret of their job;^hosts: let programs prove
feature;kernels chosen once for a run, replicas hashed on GPUs;^cuda: (choose kernels|hash replicas)
feature;learning rates by layer, layers that join later, rising image sizes;^(job: learning rates|train: (--(unfreeze|img-size)|change stages)|nccl_sync: keep MPI|cli: let --lr)
feature;checkpoints written beside training;^checkpoints:
feature;classes of other data matched by name;^eval: match the classes
feature;numbers for Prometheus;^record: --prometheus
feature;Winograd with six points, products of panels;^(cpu: (convolve 3x3 and 5x5|multiply pixels by kept)|models: ask for six)
feature;ResNets, small networks for color images;^models:
feature;the collective in which each process waits;^nccl_sync: record in which
feature;processes on the cores near their GPU;^kernels: run each process
feature;a recipe for small sets of pictures;^inception: give small
feature;export with the preparation of images, with eight bits;^export:
feature;pools and convolutions of images for GPUs;^gpu: (make the gradient of a (maximum|normalizing)|average windows|look for maxima|round two|offer a kernel|load pixels)
feature;gradients of narrow convolutions on tensor cores and AVX2;^(cuda: sum gradients of narrow|cpu: sum weight gradients of images)
fix;parts of a data set under all their names;^data: take the parts
fix;images judged by their headers, ignored files named;^data: (judge an image|count and name|tell a folder)
fix;shards kept open, shuffled fairly;^data: (keep shards|shuffle few|notice a second)
fix;large records, many hosts, memory of GPUs;^(report: read a large|hosts: allow|nccl_sync: (announce|send|count|keep|start)|replica: plan)
fix;messages, refused options, files opened safely;^(options: (refuse|write|--crop|say (that|in one))|code: escape|commands: print names|files:|samples:|text: print|job:|kernels: keep names|report: warn)
fix;kernels whose sums depended on threads or candidates;^(cuda:|kernels: (cut|compute|keep)|graph: join)
fix;data, names and arguments as other tools write them;^(data|cli|eval|predict|fetch|fid|record): (show|rank|prepare|give|replace|print the results|name|align|say|do not|know|count|refuse|keep|let|take (the orientation|an image)|tell|read byte|warn|ask|divide no|look|call|put|find|list|write|quote|follow|compute losses)
fix;records, resumes and rollbacks at their edges;^(report: say when|replica: export synch|(train|record|store): (end|keep|record gradients|continue|wait|tell|write|make|evaluate|compare|go|let|leave|ask)|compare: (say|tell)|sweep: let)
fix;causes of failures, and ends on which all agree;^(towers: (find the cause|settle the cause|ask a hung|let towers that)|nccl: tell a lack|nccl: take the remedy|hosts: let files)
structure;crowded files divided, a type for each name;^(train|nccl_sync|kernels|data|record|replica|code|kernels, graph|store): (divide|part|read and write|give|names)
structure;tables of options, commands, optimizers, operands;^(options: say in the table|kernels: (give each|say in ops))
structure;headers included once, and through one door;^(headers|includes):
structure;checks of kernels that the shape rules had made;^(kernels: leave shapes|graph, kernels:)
structure;convolutions on CPUs planned and run once;^(cpu|cpu/conv|kernels/cpu):
structure;one star of connections, one table of its messages;^hosts: one star
moved;fault points, to tests/;^tests: keep the fault points
removed;bandwidth and clocks of hosts (decision 15);^doctor: leave clocks
removed;convolutions joined with batch norms (decision 17);^(graph: remove the passes that join|kernels: remove the ops of joined)
structure;everything else;^
END
}
if [ "${1-}" = --why ]; then
    [ $# -ge 2 ] && [ $# -le 3 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
    set -f
    for commit in "$2" "${3-HEAD}"; do
        lines=$(git grep -hc '' "$commit" -- {kernels,nccl_sync,towers,inception}/*.{c,h,cu,cuh,def} | awk '{ n += $1 } END { print n }')
        echo "$(git rev-parse --short "$commit"): $lines lines"
    done
    echo
    { why; git log --reverse --format='@%s' --numstat "$2..${3-HEAD}" -- kernels nccl_sync towers inception; } | awk -F'[;\t]' -v lines="$lines" '
        function row(kind, what, net) { printf "| %s | %s | %+d |\n", kind, what, net }
        /^[a-z]+;/ { kind[++rows] = $1; what[rows] = $2; subject[rows] = $3; next }
        /^@/ { for (at = 1; substr($0, 2) !~ subject[at];) at++; next }
        NF == 3 && $3 ~ /\.(c|h|cu|cuh|def)}?$/ { net[at] += $1 - $2; of[kind[at]] += $1 - $2; all += $1 - $2 }
        END {
            print "| kind | what | lines |\n|---|---|---:|"
            for (i = 1; i <= rows; i++) { row(kind[i], what[i], net[i]); last[kind[i]] = i }
            for (i = 1; i <= rows; i++) if (last[kind[i]] == i) row("**" kind[i] "**", "", of[kind[i]])
            row("**all**", "", all)
            printf "| **lines without features** | | %d |\n", lines - of["feature"]
        }'
    exit
fi

[ $# -le 2 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }

commits=("${@:-HEAD}") work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for i in "${!commits[@]}"; do
    mkdir "$work/$i"
    git archive "${commits[i]}" kernels nccl_sync towers inception | tar -x -C "$work/$i"
    (cd "$work/$i" && find . -type f \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' -o -name '*.def' \) -printf '%h %p\n') |
        while read -r room file; do echo "${room#./} $(wc -l <"$work/$i/$file")"; done |
        awk '{ lines[$1] += $2; files[$1]++ } END { for (room in lines) print room, files[room], lines[room] }' | sort >"$work/count-$i"
done

join -a 1 -a 2 -e - -o 0,1.2,1.3,2.2,2.3 "$work/count-0" "$work/count-$((${#commits[@]} - 1))" |
    awk -v two=$((${#commits[@]} - 1)) '
        function row(room, f1, l1, f2, l2) { printf two ? "%-22s %5s %7s %7s %7s\n" : "%-22s %5s %7s\n", room, f1, l1, f2, l2 }
        BEGIN { row("room", "files", "lines", "files", "lines") }
        { row($1, $2, $3, $4, $5); f1 += $2; l1 += $3; f2 += $4; l2 += $5 }
        END { row("all", f1, l1, f2, l2) }'
for i in "${!commits[@]}"; do
    echo "$(git rev-parse --short "${commits[i]}"): $(python3 tests/support/check_map.py "$work/$i" | tail -n 1)"
done
