# Which files have changed, and which unit tests read them; for scripts that source this file from the root of the tree.

# changed_files [REVISION]: what differs from it, or from the last commit, with files that are new or gone; in a clean tree what the last
# commit changed
changed_files() {
    local since=${1:-HEAD}
    [ -n "${1:-}" ] || [ -n "$(git status --porcelain)" ] || since=HEAD~1
    { git diff --name-only "$since" && git ls-files --others --exclude-standard; } | sort -u
}

# tests_of FILE...: changed tests, tests named after a changed file, then those that include its header; test_ops for kernels
tests_of() {
    local file header first=() then=() name
    for file; do
        name=$(basename "${file%.*}")
        case $file in
        tests/unit/test_*.c | tests/faults/test_*.c) [ ! -f "$file" ] || first+=("$name") ;;
        kernels/*.[ch] | nccl_sync/*.[ch] | towers/*.[ch] | inception/*.[ch])
            [ ! -f "tests/unit/test_$name.c" ] || first+=("test_$name")
            [[ $file != kernels/* || $file == kernels/base/* ]] || then+=(test_ops)
            header=${file%.*}.h
            while read -r file; do
                then+=("$(basename "${file%.c}")")
            done < <(grep -lF "#include \"$header\"" tests/unit/test_*.c tests/faults/test_*.c 2>/dev/null || true)
            ;;
        esac
    done
    printf '%s\n' "${first[@]}" "${then[@]}" | awk 'NF && !seen[$0]++'
}
