#!/usr/bin/env bash
# tests/support/mutants.py on a project of one file and some tests: what a test notices is caught, what none notices has survived, and a
# test that fails or is skipped without any mutant proves nothing about one. Scripts run programs with the mutant, and none without it.
. "$1/tests/support/check.sh"
needs_python
for tool in ninja cc; do
    command -v $tool >/dev/null || { echo "SKIPPED: no $tool" >&2; exit 77; }
done

project=$work/project
mkdir -p "$project/kernels" "$project/tests/cli" "$project/build/tests"
echo 'int twice(int x) { return x + x; }' >"$project/kernels/twice.c"
test_put() { # NAME CONDITION: the exit status
    echo "int twice(int x); int main(void) { return $2; }" >"$project/tests/$1.c"
}
test_put test_sees 'twice(2) != 4'
test_put test_blind 'twice(0) != 0'
test_put test_fails '1'
test_put test_skips '77'
test_put towers '0'
test_put twice_driver 'twice(2) != 4'
script_put() { echo "build=\$(dirname \"\$(realpath \"\$2\")\"); $2" >"$project/tests/cli/check_$1.sh"; } # NAME COMMANDS
script_put names '"$build/tests/twice_driver"'
script_put hides 'name=twice; "$build/tests/$name"_driver'
script_put blind '"$2" && "$build/tests/other"'
{
    echo 'rule compile'
    echo '  command = cc -o $out -c $in'
    echo 'rule link'
    echo '  command = cc -o $out $in'
    echo "build twice.o: compile $project/kernels/twice.c"
    for name in test_sees test_blind test_fails test_skips; do
        echo "build $name.o: compile $project/tests/$name.c"
        echo "build $name: link $name.o twice.o"
    done
    for name in towers twice_driver; do echo "build $name.o: compile $project/tests/$name.c"; done
    echo "build towers: link towers.o twice.o"
    echo "build tests/twice_driver: link twice_driver.o twice.o"
    echo "build all: phony test_sees test_blind test_fails test_skips towers tests/twice_driver"
} >"$project/build/build.ninja"
ninja -C "$project/build" >"$out" 2>&1 || complain "the project does not build: $(cat "$out")"
printf '#!/bin/sh\n' >"$project/build/tests/other" && chmod +x "$project/build/tests/other" # what is not built has no mutant
ninja -C "$project/build" -t compdb compile >"$project/build/compile_commands.json"

expect() { # STATUS WANTED-LINE TESTS: of the mutant that multiplies
    printf '# a cube\nkernels/twice.c twice(): %s\n- x + x\n+ x * x * x\n' "$3" >"$project/tests/mutants.txt"
    python3 "$source_dir/tests/support/mutants.py" "$project" "$project/build" >"$out" 2>"$err"
    local status=$?
    [[ $status == "$1" ]] || complain "$3: exit $status instead of $1: $(cat "$out" "$err")"
    grep -q "$2" "$out" || complain "$3: no line '$2': $(cat "$out" "$err")"
}
expect 0 '^caught .*a cube (test_sees: exit 1)' 'test_sees'
expect 0 '^caught .*a cube (test_sees: exit 1)' 'test_blind test_sees'
expect 1 '^survived .*a cube (test_blind)' 'test_blind'
expect 1 '^broken .*a cube (test_fails fails without a mutant: exit 1)' 'test_fails'
expect 1 '^broken .*a cube (test_fails fails without a mutant: exit 1)' 'test_fails test_sees'
expect 0 '^not run here .*a cube (test_skips)' 'test_skips'
expect 0 '^caught .*a cube (test_sees: exit 1)' 'test_skips test_sees'
expect 0 '^caught .*a cube (check_names: exit 1)' 'check_names'
expect 1 '^broken .*a cube (check_hides fails without a mutant: exit 127)' 'check_hides'
expect 1 '^survived .*a cube (check_blind)' 'check_blind'
expect 1 '^mutant 1, a cube: there is no test check_names,;' 'check_names, check_blind'

# A row is for what its file defines by a name, and only tokens count; --check says what became of them.
cp "$project/kernels/twice.c" "$work/twice.c"
cat >"$project/kernels/twice.c" <<'END'
#define SUM(x) \
    ((x) + (x))
extern "C" {
static const int ones[] = {1, 1};
int once(int x) { return x + 0; } /* x + x */
static int (*const calls[])(int) = {once};
int twice(int x)
{
    return x /* once
        and */ + x;
}
}
END
fits() { # STATUS WANTED-LINE HEAD OLD
    printf '# a cube\n%s: test_sees\n- %s\n+ 0\n' "$3" "$4" >"$project/tests/mutants.txt"
    python3 "$source_dir/tests/support/mutants.py" "$project" --check >"$out" 2>"$err"
    local status=$?
    [[ $status == "$1" ]] || complain "$3, $4: exit $status instead of $1: $(cat "$out" "$err")"
    grep -qF "$2" "$out" || complain "$3, $4: no line '$2': $(cat "$out" "$err")"
}
once='does not hold exactly once, but'
fits 0 'all 1 mutants fit' 'kernels/twice.c' 'x + x'
fits 0 'all 1 mutants fit' 'kernels/twice.c twice()' 'x  +x'
fits 0 'all 1 mutants fit' 'kernels/twice.c SUM()' '(x)'$'\n''- + (x)'
fits 0 'all 1 mutants fit' 'kernels/twice.c ones()' '1, 1'
fits 0 'all 1 mutants fit' 'kernels/twice.c calls()' 'once'
fits 1 "kernels/twice.c $once 2 times: return x" 'kernels/twice.c' 'return x'
fits 1 "once() of kernels/twice.c $once 0 times: x + x" 'kernels/twice.c once()' 'x + x'
fits 1 "twice() of kernels/twice.c $once 3 times: x" 'kernels/twice.c twice()' 'x'
fits 1 'kernels/twice.c defines no thrice' 'kernels/twice.c thrice()' 'x + x'
echo 'int thrice(int x) { return x + x + x; }' >"$project/kernels/thrice.c"
fits 1 'kernels/twice.c defines no thrice, but kernels/thrice.c' 'kernels/twice.c thrice()' 'x + x'
rm "$project/kernels/thrice.c"
printf '# a\nkernels/twice.c [!avx]: test_sees\n- int twice(int x) { return x + x;\n+ int twice(int x) { return x * x;\n\n# b\nkernels/twice.c in kernels/twice.c: test_sees\n- return x + 0; }\n+ return x; }\n' >"$project/tests/mutants.txt"
python3 "$source_dir/tests/support/mutants.py" "$project" --anchor >"$out" 2>&1 || complain "--anchor: $(cat "$out")"
printf '# a\nkernels/twice.c twice() [!avx]: test_sees\n- x + x\n+ x * x\n\n# b\nkernels/twice.c once(): test_sees\n- x + 0\n+ x\n' |
    diff - "$project/tests/mutants.txt" >"$out" || complain "--anchor: $(cat "$out")"
cp "$work/twice.c" "$project/kernels/twice.c"
expect 0 '^caught .*a cube (test_sees: exit 1)' 'test_sees'

# --null: a comment, which no test may catch
nothing() { # STATUS WANTED-LINE TESTS
    printf '# a cube\nkernels/twice.c: %s\n- x + x\n+ x * x * x\n' "$3" >"$project/tests/mutants.txt"
    python3 "$source_dir/tests/support/mutants.py" "$project" "$project/build" --null >"$out" 2>"$err"
    local status=$?
    [[ $status == "$1" ]] || complain "--null, $3: exit $status instead of $1: $(cat "$out" "$err")"
    grep -q "$2" "$out" || complain "--null, $3: no line '$2': $(cat "$out" "$err")"
}
nothing 0 '^3 survived of 3 mutants' 'test_sees check_names check_blind'
nothing 0 '^1 not run here, 1 survived of 2 mutants' 'test_sees test_skips'
nothing 1 '^caught .*nothing, for check_hides (check_hides: exit 127)' 'test_sees check_hides'

# --diff: mistakes in the lines that a commit changed, and in no others
command -v git >/dev/null || { left_out "--diff: git is not installed"; check_end "a test counts only if it passes without a mutant"; exit; }
git -C "$project" init -q
commit() { git -C "$project" add kernels && git -C "$project" -c user.name=x -c user.email=x@example.org commit -qm x; }
commit
printf 'int other(int x) { return x - 1; }\nint twice(int x)\n{\n    return x + x; // 1 + 1\n}\n' >"$project/kernels/twice.c"
sed -i 's/x - 1/x + 1/' "$project/kernels/twice.c" && commit
diffs() { # STATUS TESTS ARGUMENT...: what is found with these tests in the table
    printf '# a cube\nkernels/twice.c: %s\n- x + x\n+ x * x * x\n' "$2" >"$project/tests/mutants.txt"
    python3 "$source_dir/tests/support/mutants.py" "$project" "$project/build" --diff "${@:3}" >"$out" 2>"$err"
    local status=$?
    [[ $status == "$1" ]] || complain "--diff ${*:3} with $2: exit $status instead of $1: $(cat "$out" "$err")"
}
diffs 1 test_sees HEAD~1 # the other function is tried by nothing
grep -q '^caught .*line 4: return x - x; ' "$out" && grep -q '^survived .*line 1: int other(int x) { return x - 1; }' "$out" &&
    grep -q '^1 caught, 1 survived of 2 mutants' "$out" || complain "--diff: $(cat "$out" "$err")"
sed -i '4s/x + x/x + (x)/' "$project/kernels/twice.c"
printf '# a cube\nkernels/twice.c: test_blind\n- x + (x)\n+ x * x * x\n' >"$project/tests/mutants.txt"
python3 "$source_dir/tests/support/mutants.py" "$project" "$project/build" --diff HEAD >"$out" 2>"$err" && complain "--diff HEAD: $(cat "$out")"
grep -q '^survived .*line 4: return x - (x); .*(test_blind test_twice)' "$out" || complain "--diff of what is not committed: $(cat "$out" "$err")"

check_end "a test counts only if it passes without a mutant"
