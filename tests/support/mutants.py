#!/usr/bin/env python3
"""Mutants of the code: each is one small mistake, and its tests must see it. Called by tests/mutants.sh.

The table is tests/mutants.txt. A mutant is three lines and more:

    # what is wrong
    FILE: TEST [TEST...]                    or FILE [FLAG]: TEST..., FILE [!FLAG]: TEST..., HEADER in FILE: TEST...
    - text of FILE, which occurs in it exactly once (runs of white space are equal); or in one other file, if it moved
    + what stands there instead

`-` and `+` may go on over several lines. A FLAG is one of /proc/cpuinfo: the file's code runs only on processors that
have it (or, with `!`, that lack it). A HEADER is changed for that one FILE. For each mutant the one source file is compiled as the build compiles it, with
the other text, and linked in front of the build's libraries into a copy of the test program (for a check_*.sh: of
towers). Nothing else is built again. A test that passes without the mutant and fails, crashes or hangs with it has caught it.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time

PASSED, SKIPPED = "passed", "skipped"
UNCHANGED_S = 900  # of wall time, for a test without a mutant: several times what the slowest takes, check_hosts
HANGS_S, TIMES_SLOWER = 60, 6  # with a mutant: so many seconds, and so many times the time without it
HEAD = re.compile(r"(\S+?)(?: in (\S+?))?(?: \[(!?\w+)\])?:(.*)")
Mutant = collections.namedtuple("Mutant", "number title file source needs tests old new")  # source: what is compiled, mostly file


def table_read(path):
    mutants, title, head, old, new = [], "", None, [], []

    def finish():
        if head:
            parts = HEAD.fullmatch(head)
            if not (parts and old and new and parts[4].split()):
                sys.exit(f"mutants: '{title}' lacks its file, its tests, its old or its new text")
            texts = "\n".join(old), "\n".join(new)
            mutants.append(Mutant(len(mutants) + 1, title, parts[1], parts[2] or parts[1], parts[3], parts[4].split(), *texts))

    for line in open(path, encoding="utf-8"):
        line = line.rstrip("\n")
        if line.startswith("- ") and head:
            old.append(line[2:])
        elif line.startswith("+") and head:
            new.append(line[2:])
        elif line.startswith("# ") or not line:
            finish()
            title, head, old, new = line[2:], None, [], []
        else:
            head = line
    finish()
    return mutants


def mutated(source, mutant):
    """The file's text with the mutant in it, or None if the old text does not occur exactly once."""
    path = os.path.join(source, mutant.file)
    if not os.path.exists(path):
        return None
    text = open(path, encoding="utf-8").read()
    pattern = r"\s+".join(re.escape(word) for word in mutant.old.split())
    found = list(re.finditer(pattern, text))
    if len(found) != 1:
        return None
    return text[: found[0].start()] + mutant.new + text[found[0].end() :]


# Small mistakes that are tried in the changed lines of a commit, with --diff: (what is found, what stands there instead).
MISTAKES = [(re.compile(found), instead) for found, instead in (
    (r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "), (r" != ", " == "), (r" && ", " || "),
    (r" \|\| ", " && "), (r" \+ ", " - "), (r" - ", " + "), (r"\btrue\b", "false"), (r"\bfalse\b", "true"), (r"\+\+", "--"),
    (r"^\s+(?!return|TRY|break|continue|goto|case)[\w>.\[\]()-]+(?:\(.*\)| [-+*/|&]?= .*);$", ";"))]


def of_diff(source, commits, table):
    """Mutants of the lines of C files that `commits` (what git diff takes) changed and that still stand there. The tests of a file are
    those of its rows in the table, and test_X for X.c."""
    diff = subprocess.run(["git", "-C", source, "diff", "--unified=0", "--no-color", *commits.split(), "--", "*.c"], check=True,
                          capture_output=True, text=True).stdout
    mutants, path, at = [], None, 0
    for line in diff.splitlines():
        if line.startswith("+++ "):
            path = line[6:] if line.startswith("+++ b/") and not line.startswith("+++ b/tests/") else None
            lines = open(os.path.join(source, path), encoding="utf-8").read().splitlines() if path else []
            rows = collections.Counter(test for m in table if m.file == path for test in m.tests)
            own = "test_" + os.path.splitext(os.path.basename(path or ""))[0]
            tests = [test for test, _ in rows.most_common()] + [own] * (own not in rows)
        elif line.startswith("@@"):
            at = int(re.search(r"\+(\d+)", line)[1]) - 1
        elif line.startswith("+") and path:
            text, at = line[1:], at + 1
            if at > len(lines) or lines[at - 1] != text or re.match(r"\s*(?://|/?\*|#)", text):
                continue
            for found, instead in MISTAKES:
                match = found.search(re.sub(r'"(?:\\.|[^"\\])*"', lambda quoted: "_" * len(quoted[0]), text))
                if not match:
                    continue
                changed = text[:match.start()] + instead + text[match.end():]
                for first in range(at - 1, max(at - 8, -1), -1):  # as many lines before it as make it the only one
                    before = "\n".join(lines[first:at - 1] + [""])
                    mutant = Mutant(len(mutants) + 1, f"line {at}: {changed.strip()}", path, path, None, tests, before + text, before + changed)
                    if mutated(source, mutant) is not None:
                        mutants.append(mutant)
                        break
    return mutants


def flags_of_cpu():
    for line in open("/proc/cpuinfo", encoding="utf-8"):
        if line.startswith("flags"):
            return set(line.split())
    return set()


def runs_with(mutant, flags):
    """Whether a processor with these flags runs the code of the mutant."""
    if not mutant.needs:
        return True
    return (mutant.needs.lstrip("!") in flags) != mutant.needs.startswith("!")


class Build:
    def __init__(self, source, build):
        self.source, self.build = source, build
        compiles = json.load(open(os.path.join(build, "compile_commands.json")))
        self.compiles = collections.defaultdict(list)
        for entry in compiles:
            name = os.path.relpath(os.path.join(entry["directory"], entry["file"]), source)
            self.compiles[name].append(shlex.split(entry["command"]))
        self.links, self.baselines, self.locks = {}, {}, collections.defaultdict(threading.Lock)
        commands = subprocess.run(["ninja", "-C", build, "-t", "commands", "all"], check=True, capture_output=True, text=True)
        for line in commands.stdout.splitlines():
            match = re.search(r"-o (\S+)(?= )", line)
            if match and " -c " not in line:
                for part in line.split("&&"):
                    if f"-o {match[1]} " in part:
                        self.links[match[1]] = shlex.split(part)

    def program(self, test):
        """The path of a test's program in the build, and its link command; None, None if it is not built here."""
        wanted = "towers" if test.startswith("check_") else test
        return next(((name, link) for name, link in self.links.items() if os.path.basename(name) == wanted), (None, None))

    def baseline(self, test, name):
        """How the test ends without a mutant, as test_run returns it, and in how many seconds; each is tried once."""
        with self.locks[test]:
            if test not in self.baselines:
                begun = time.monotonic()
                ended = test_run(self, test, os.path.join(self.build, name), UNCHANGED_S)
                self.baselines[test] = ended, time.monotonic() - begun
            return self.baselines[test]

    def compiled(self, mutant, link, folder, text):
        """Compile the mutated text into `folder`; returns (the original's object, the new object) or an error text."""
        def output(command):
            return command[command.index("-o") + 1]

        commands = self.compiles.get(mutant.source, [])
        words = {os.path.normpath(word) for word in link}
        command = next((c for c in commands if os.path.normpath(output(c)) in words), commands[0] if commands else None)
        if not command:
            return f"{mutant.source} is not compiled in this build"
        path = os.path.join(folder, mutant.file if mutant.source != mutant.file else os.path.basename(mutant.file))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, "w", encoding="utf-8").write(text)
        base = os.path.join(folder, os.path.basename(mutant.source))
        source = path if mutant.source == mutant.file else os.path.join(self.source, mutant.source)
        original = os.path.normpath(output(command))
        own = [word for word in command]
        own[own.index("-o") + 1] = base + ".o"
        own[own.index("-c") + 1] = source
        own += ["-w", "-Wno-error", "-iquote", folder, "-iquote", os.path.join(self.source, os.path.dirname(mutant.source))]
        for flag in ("-MD", "-MT", "-MF"):
            if flag in own:
                at = own.index(flag)
                del own[at : at + (1 if flag == "-MD" else 2)]
        done = subprocess.run(own, cwd=self.build, capture_output=True, text=True)
        if done.returncode:
            return "does not compile:\n" + done.stderr[-1500:]
        return original, base + ".o"

    def linked(self, link, original, new, program):
        own = [word for word in link]
        own[own.index("-o") + 1] = program
        if original in map(os.path.normpath, own):
            own = [new if os.path.normpath(word) == original else word for word in own]
        else:
            own.insert(next(i for i, word in enumerate(own) if word.endswith(".a")), new)
        done = subprocess.run(own, cwd=self.build, capture_output=True, text=True)
        return None if done.returncode == 0 else "does not link:\n" + done.stderr[-1500:]


def test_run(build, test, program, limit):
    """PASSED, SKIPPED (77; cmocka's skips count as passed), or how it ended; `limit`: seconds."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TOWERS_")}
    environment.update(OMP_WAIT_POLICY="PASSIVE")
    command = [program]
    if test.startswith("check_"):
        found = [os.path.join(build.source, "tests", room, test + ".sh") for room in ("cli", "faults", "gpu")]
        command = ["bash", next(path for path in found if os.path.exists(path)), build.source, program]
    with subprocess.Popen(command, env=environment, cwd=os.path.dirname(program), stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True) as child:
        try:
            child.wait(limit)
        except subprocess.TimeoutExpired:
            pass
        ended = child.poll()
        with contextlib.suppress(ProcessLookupError):  # what the mistake left running, too
            os.killpg(child.pid, signal.SIGKILL)
    if ended is None:
        return f"did not end within {limit:.0f} s"
    return {0: PASSED, 77: SKIPPED}.get(ended, f"exit {ended}")


def try_mutant(build, mutant):
    """("caught" | "survived" | "not run here" | "broken", text)"""
    text = mutated(build.source, mutant)
    if text is None:
        return "broken", f"{mutant.file} does not hold the old text exactly once: {mutant.old}"
    ran = False
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        for test in mutant.tests:
            name, link = build.program(test)
            if not link:
                continue
            usual, seconds = build.baseline(test, name)
            if usual == SKIPPED:
                continue
            if usual != PASSED:
                return "broken", f"{test} fails without a mutant: {usual}"
            made = build.compiled(mutant, link, folder, text)
            if isinstance(made, str):
                return "broken", made
            check = test.startswith("check_")
            place = os.path.join(folder, "build")  # a mutant of a header lies in folder/towers
            os.makedirs(place, exist_ok=True)
            program = os.path.join(place, "towers" if check else test)
            if check and not os.path.exists(os.path.join(place, "tests")):
                os.symlink(os.path.join(build.build, "tests"), os.path.join(place, "tests"))
            problem = build.linked(link, *made, program)
            if problem:
                return "broken", problem
            ran = True
            ended = test_run(build, test, program, HANGS_S + TIMES_SLOWER * seconds)
            if ended not in (PASSED, SKIPPED):
                return "caught", f"{test}: {ended}"
    return ("survived" if ran else "not run here"), " ".join(mutant.tests)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("build", nargs="?")
    parser.add_argument("--check", action="store_true", help="only look whether every mutant's text is there")
    parser.add_argument("--only", help="mutants whose title or file holds this text")
    parser.add_argument("--diff", help="mutants of the lines that these commits changed, e.g. HEAD~1, instead of the table")
    parser.add_argument("--random", type=int, help="so many of them, chosen at random")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments = parser.parse_args()
    source = os.path.abspath(arguments.source)
    mutants = table_read(os.path.join(source, "tests/mutants.txt"))
    stale = [m for m in mutants if mutated(source, m) is None]
    for m in stale:
        print(f"mutant {m.number}, {m.title}: {m.file} does not hold exactly once: {' '.join(m.old.split())}")
    headers = [m for m in mutants if not m.source.endswith((".c", ".cu"))]
    for m in headers:
        print(f"mutant {m.number}, {m.title}: {m.source} is not compiled by itself; name a source file that includes it: HEADER in FILE")
    stale += headers
    if stale:
        sys.exit(f"{len(stale)} of {len(mutants)} mutants do not fit the source: mend tests/mutants.txt")
    if arguments.check:
        print(f"all {len(mutants)} mutants fit the source")
        return
    if arguments.diff:
        mutants = of_diff(source, arguments.diff, mutants)
    if arguments.only:
        mutants = [m for m in mutants if arguments.only in m.title or arguments.only in m.file]
    flags = flags_of_cpu()
    for m in [m for m in mutants if not runs_with(m, flags)]:
        if not arguments.random:
            print(f"not run here {m.number}, {m.title}: the processor's flags do not fit [{m.needs}]")
    mutants = [m for m in mutants if runs_with(m, flags)]
    if arguments.random:
        random.Random(arguments.seed).shuffle(mutants)
        mutants = mutants[: arguments.random]
        print(f"{len(mutants)} mutants chosen with --seed {arguments.seed}")
    build = Build(source, os.path.abspath(arguments.build))
    counts = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for m, (found, text) in zip(mutants, pool.map(lambda m: try_mutant(build, m), mutants)):
            counts[found] += 1
            print(f"{found:9} {m.number:3}  {m.file}: {m.title} ({text})", flush=True)
    print(", ".join(f"{count} {found}" for found, count in sorted(counts.items())) + f" of {len(mutants)} mutants")
    sys.exit(1 if counts["survived"] or counts["broken"] else 0)


if __name__ == "__main__":
    main()
