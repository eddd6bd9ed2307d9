#!/usr/bin/env python3
"""Mutants of the code: each is one small mistake, and its tests must see it. Called by tests/mutants.sh.

The table is tests/mutants.txt. A mutant is three lines and more:

    # what is wrong
    FILE NAME(): TEST [TEST...]             or FILE [FLAG]: TEST..., FILE [!FLAG]: TEST..., HEADER in FILE: TEST...
    - tokens that occur exactly once in what FILE defines by that name: a function, a table, a macro
    + what stands there instead

Without a name they occur once in the whole file. Only tokens are compared, no white space and no comments, so that neither a new
comment nor a line that is broken elsewhere makes a mutant stale. `-` and `+` may go on over several lines. Whole lines may be quoted in a new row, too: --anchor
then finds the name and leaves as few tokens as say the place. A FLAG is one of /proc/cpuinfo: the file's code runs only on processors
that have it (or, with `!`, that lack it). A HEADER is changed for that one FILE.

For each mutant the one source file is compiled as the build compiles it, with the other text, and linked in front of the
build's libraries into copies of the programs and libraries that the test uses. They lie in a folder like that of the build,
which has all else of it, but nothing that holds the original: a program that was forgotten is not there, and the test fails.
So it first runs there with the unchanged file, compiled and linked in the same way. A test that passes then and fails,
crashes or hangs with the mutant has caught it; --null tries what none may catch, one comment more, for every test.
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
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

PASSED, SKIPPED = "passed", "skipped"
UNCHANGED_S = 900  # of wall time, for a test without a mutant: several times what the slowest takes, check_hosts
HANGS_S, TIMES_SLOWER = 60, 6  # with a mutant: so many seconds, and so many times the time without it
HEAD = re.compile(r"(\S+?)(?: (\w+)\(\))?(?: in (\S+?))?(?: \[(!?\w+)\])?:(.*)")
# name: in what of the file, or None; source: what is compiled, mostly file
Mutant = collections.namedtuple("Mutant", "number title file name source needs tests old new")


def table_read(path):
    mutants, title, head, old, new = [], "", None, [], []

    def finish():
        if head:
            parts = HEAD.fullmatch(head)
            if not (parts and old and new and parts[5].split()):
                sys.exit(f"mutants: '{title}' lacks its file, its tests, its old or its new text")
            texts = "\n".join(old), "\n".join(new)
            mutants.append(Mutant(len(mutants) + 1, title, parts[1], parts[2], parts[3] or parts[1], parts[4], parts[5].split(), *texts))

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


TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|[A-Za-z_]\w*|\.?\d(?:[eEpP][+-]|[\w.])*|<<=|>>=|\.\.\.|->|\+\+|--|<<|>>'
                   r'|[<>=!+*/%&|^-]=|&&|\|\||##|\S')
NO_TOKEN = re.compile(r"/\*.*?\*/|//[^\n]*|\\\n|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)  # comments and continued lines, or what looks like them
DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w+)[ \t]*(\w*)(?:\\\n|[^\n])*", re.M)


def tokens_of(text):
    """[(first, end)] of all tokens of a text in C."""
    bare = NO_TOKEN.sub(lambda found: found[0] if found[0][0] in "\"'" else re.sub(r"[^\n]", " ", found[0]), text)
    return [found.span() for found in TOKEN.finditer(bare)]


class Code:
    """The text of a source, its tokens, and the parts of them that have a name at the top level: functions, tables, types, macros."""

    def __init__(self, text):
        self.text, self.spans = text, tokens_of(text)
        self.words = [text[first:end] for first, end in self.spans]
        self.named = collections.defaultdict(list)  # name: [(first token, end)]
        directives = [(found.start(), found.end(), found[2] if found[1] == "define" else None) for found in DIRECTIVE.finditer(text)]
        inside, depth, begun = iter(directives), 0, 0
        first, end, name = next(inside, (len(text), len(text), None))
        for i, word in enumerate(self.words):
            at = self.spans[i][0]
            while at >= end:
                first, end, name = next(inside, (len(text), len(text) + 1, None))
            if first <= at < end:  # a directive ends no declaration, but for one between two
                if name:
                    self.named[name] += [(i, i + 1)]
                if depth == 0:
                    begun = i + 1
            elif word == "{":
                if depth == 0 and self.words[begun:i] == ["extern", '"C"']:
                    begun = i + 1
                    continue
                depth += 1
            elif word == "}":
                depth = max(depth - 1, 0)
                if depth == 0 and self.words[i + 1:i + 2] != [";"]:
                    self.define(begun, i + 1)
                    begun = i + 1
            elif word == ";" and depth == 0:
                self.define(begun, i + 1)
                begun = i + 1

    def define(self, begun, end):
        words = self.words[begun:end]
        head = words[:min(words.index(mark) for mark in ("{", "=", ";") if mark in words)] if set(words) & {"{", "=", ";"} else words
        depth, name = 0, None
        for i, word in enumerate(head):  # what stands before the last bracket, or last
            depth += (word in "([") - (word in ")]")
            if re.match(r"[A-Za-z_]", word) and depth == 0:
                name = word
            elif word == "(" and depth == 1 and head[i + 1:i + 2] == ["*"]:  # a pointer to functions
                name = next((inner for inner in head[i + 2:] if re.match(r"(?!const\b)[A-Za-z_]", inner)), name)
                break
            elif word == "(" and depth == 1 and name == "TEST":
                name = head[i + 1]
                break
        if name:
            self.named[name].append((begun, end))

    def name_at(self, first, end):
        """The name of the innermost part that holds these tokens; None: there is none."""
        holders = [(last - begun, name) for name, parts in self.named.items() for begun, last in parts if begun <= first and end <= last]
        macros = [name for name, parts in self.named.items() if all(any(begun <= i < last for begun, last in parts) for i in range(first, end))]
        return min(holders)[1] if holders else macros[0] if macros else None

    def places(self, words, name):
        """The numbers of the first tokens where these words stand, in what has the name."""
        parts = self.named.get(name, []) if name else [(0, len(self.words))]
        joined = []
        for begun, end in sorted(parts):  # the tokens of a macro follow each other
            if joined and joined[-1][1] == begun:
                joined[-1] = joined[-1][0], end
            else:
                joined.append((begun, end))
        return [i for begun, end in joined for i in range(begun, end - len(words) + 1)
                if self.words[i] == words[0] and self.words[i:i + len(words)] == words]


CODES = {}


def code_of(source, path):
    path = os.path.join(source, path)
    if path not in CODES:
        CODES[path] = Code(open(path, encoding="utf-8").read()) if os.path.exists(path) else None
    return CODES[path]


def words_of(text):
    return [text[first:end] for first, end in tokens_of(text)]


def mutated(source, mutant):
    """The file's text with the mutant in it, or None if the old tokens do not occur exactly once."""
    code, words = code_of(source, mutant.file), words_of(mutant.old)
    places = code.places(words, mutant.name) if code and words else []
    if len(places) != 1:
        return None
    return code.text[:code.spans[places[0]][0]] + mutant.new + code.text[code.spans[places[0] + len(words) - 1][1]:]


def misfit(source, mutant):
    """Why a mutant does not fit, for who mends the table."""
    code, old = code_of(source, mutant.file), " ".join(mutant.old.split())
    if not code:
        return f"there is no {mutant.file}"
    if mutant.name and mutant.name not in code.named:
        others = [os.path.relpath(os.path.join(folder, name), source) for floor in ("kernels", "nccl_sync", "towers", "inception")
                  for folder, _, names in os.walk(os.path.join(source, floor)) for name in names if name.endswith((".c", ".h", ".cu", ".cuh"))]
        there = [path for path in others if re.search(rf"\b{mutant.name}\(", code_of(source, path).text) and mutant.name in code_of(source, path).named]
        return f"{mutant.file} defines no {mutant.name}" + (f", but {' and '.join(there)}" if there else "")
    count = len(code.places(words_of(mutant.old), mutant.name))
    return f"{mutant.name + '() of ' if mutant.name else ''}{mutant.file} does not hold exactly once, but {count} times: {old}"


def tokens_text(text, spans):
    """These tokens of a text, with blanks where it has white space or comments, over lines of a width that can be read."""
    lines, end = [""], None
    for first, last in spans:
        gap = " " if end is not None and first > end else ""
        if len(lines[-1]) + len(gap) + last - first > 136 and gap:
            lines.append("")
            gap = ""
        lines[-1] += gap + text[first:last]
        end = last
    return lines


STOPS = {";", ",", "{", "}", "&&", "||", "?", ":", "=", "return"}


def whole(words, first, end):
    """From first to end, with the other brackets of a pair and the rest of the expression, as far as it is short."""
    depth, lowest = 0, 0
    for word in words[first:end]:
        depth += (word in ("(", "[")) - (word in (")", "]"))
        lowest = min(lowest, depth)
    opened, closed = depth - lowest, -lowest  # brackets that the part opens and does not close, closes and has not opened
    for step in (-1, 1):
        depth = closed if step < 0 else opened
        inner, outer = ((")", "]"), ("(", "[")) if step < 0 else (("(", "["), (")", "]"))
        while end - first < 24 and (first > 0 if step < 0 else end < len(words)):
            word = words[first - 1 if step < 0 else end]
            if depth == 0 and (word in STOPS or word in outer):
                break
            depth += (word in inner) - (word in outer)
            first, end = (first - 1, end) if step < 0 else (first, end + 1)
    return first, end


def anchored(source, mutant):
    """(name, lines of the old text, lines of the new text): as few tokens as say the place in what has a name, up to whole expressions."""
    code, old, new = code_of(source, mutant.file), words_of(mutant.old), words_of(mutant.new)
    at = code.places(old, mutant.name)[0]
    name = code.name_at(at, at + len(old))
    same, behind = 0, 0
    while same < min(len(old), len(new)) and old[same] == new[same]:
        same += 1
    while behind < min(len(old), len(new)) - same and old[-1 - behind] == new[-1 - behind]:
        behind += 1
    first, end, left = same, len(old) - behind, True
    while (first > 0 or end < len(old)) and (first == end or len(code.places(old[first:end], name)) != 1):
        if (left and first > 0) or end == len(old):
            first -= 1
        else:
            end += 1
        left = not left
    first, end = whole(old, first, end)
    spans = tokens_of(mutant.new)[first:len(new) - (len(old) - end)]
    return name, tokens_text(code.text, code.spans[at + first:at + end]), tokens_text(mutant.new, spans) or [""]


def anchor_all(source, path, mutants):
    """Write the table anew, each row by the name and the fewest tokens."""
    with open(path, "w", encoding="utf-8") as table:
        for m in mutants:
            name, old, new = anchored(source, m)
            again = m._replace(name=name, old="\n".join(old), new="\n".join(new))
            if words_of(mutated(source, again) or "") != words_of(mutated(source, m)):
                sys.exit(f"mutants: {m.number}, {m.title}: another mistake by its tokens")
            head = m.file + (f" {name}()" if name else "") + (f" in {m.source}" if m.source != m.file else "") + (f" [{m.needs}]" if m.needs else "")
            rows = [f"# {m.title}", f"{head}: {' '.join(m.tests)}", *("- " + line for line in old), *(("+ " + line).rstrip() for line in new)]
            table.write(("\n" if m.number > 1 else "") + "\n".join(rows) + "\n")


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
                    mutant = Mutant(len(mutants) + 1, f"line {at}: {changed.strip()}", path, None, path, None, tests, before + text, before + changed)
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


class Broken(Exception):
    """A mutant that cannot be tried, and why."""


def output_of(command):
    return command[command.index("-o") + 1]


def parents_of(name):
    while name := os.path.dirname(name):
        yield name


def test_file(source, test):
    """The script of a test, or the file of its program; None if it has another name."""
    ending = ".sh" if test.startswith("check_") else ".c"
    paths = [os.path.join(source, "tests", room, test + ending) for room in ("cli", "faults", "gpu", "unit")]
    return next((path for path in paths if os.path.exists(path)), None)


class Build:
    """What ninja compiles and links, and copies of it with another object in them."""

    def __init__(self, source, build):
        self.source, self.build = source, build
        self.compiles, self.links, self.archives = collections.defaultdict(list), {}, {}
        for entry in json.load(open(os.path.join(build, "compile_commands.json"))):
            name = os.path.relpath(os.path.join(entry["directory"], entry["file"]), source)
            self.compiles[name].append(shlex.split(entry["command"]))
        commands = subprocess.run(["ninja", "-C", build, "-t", "commands", "all"], check=True, capture_output=True, text=True)
        for part in (part for line in commands.stdout.splitlines() if " -c " not in line for part in line.split("&&")):
            words = shlex.split(part)
            if "-o" in words:
                self.links[self.path(words[words.index("-o") + 1])] = words
            elif "qc" in words:
                at = words.index("qc") + 1
                self.archives[self.path(words[at])] = {self.path(word) for word in words[at + 1:]}
        self.baselines, self.locks = {}, collections.defaultdict(threading.Lock)

    def path(self, word):
        """The file that a word of a command names, as seen from the build's folder."""
        return os.path.relpath(os.path.join(self.build, word), self.build)

    def holders(self, source):
        """{program or library: how the object of this source file in it is compiled}"""
        found = {}
        for name, link in self.links.items():
            words = {self.path(word) for word in link}
            held = words.union(*(self.archives[word] for word in words & self.archives.keys()))
            for command in self.compiles.get(source, []):
                if self.path(output_of(command)) in held:
                    found.setdefault(name, command)
        return found

    def program(self, test):
        """The path of a test's program in the build, for a script that of towers; None if it is not built here."""
        wanted = "towers" if test.startswith("check_") else test
        return next((name for name in self.links if os.path.basename(name) == wanted), None)

    def used(self, test):
        """The programs and libraries that a test names, in its script or in a file of tests/ that this names in turn, or installs."""
        own, read, texts = self.program(test), set(), []
        wanted = [test_file(self.source, test) or test]
        while wanted:
            path = wanted.pop()
            if path in read or not os.path.exists(path):
                continue
            read.add(path)
            texts.append(open(path, encoding="utf-8").read())
            if not path.endswith(".c"):
                wanted += [os.path.join(self.source, "tests", room, name) for name in re.findall(r"[\w-]+\.(?:sh|py)\b", texts[-1])
                           for room in ("support", "cli", "faults", "gpu")]
        text = "\n".join(texts)
        words = set(re.findall(r"\w+", text)) - (set() if test.startswith("check_") else {"towers"})
        words |= {"towers"} & set(re.findall(r"towers(?=_program\()", text))
        beginnings = tuple(re.findall(r"\b(\w+_)(?=\$)", text))
        installed = "\n".join(open(path, encoding="utf-8").read() for path in self.installs()) if "--install" in text else ""
        return {own} | {name for name in self.links if os.path.basename(name).split(".")[0] in words
                        or os.path.basename(name).startswith(beginnings) or f"/{name}\"" in installed}

    def installs(self):
        path = os.path.join(self.build, "cmake_install.cmake")
        return [path] if os.path.exists(path) else []

    def baseline(self, test, mutant, original):
        """How the test ends with the file as it is, compiled and linked as its mutants are, and in how many seconds; tried once."""
        key = test, mutant.file, mutant.source
        with self.locks[key]:
            if key not in self.baselines:
                begun = time.monotonic()
                self.baselines[key] = self.run(test, mutant, original, UNCHANGED_S), time.monotonic() - begun
            return self.baselines[key]

    def run(self, test, mutant, text, limit):
        """How the test ends with this text of the mutant's file, as test_run returns it. Raises Broken."""
        holders = self.holders(mutant.source)
        if not holders:
            raise Broken(f"{mutant.source} is not compiled in this build")
        relinked = self.used(test) & holders.keys()
        if not relinked:
            raise Broken(f"no program of {test} holds {mutant.source}")
        with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
            place, objects = os.path.join(folder, "build"), {}
            self.mirror(place, holders.keys(), self.program(test))
            for name in sorted(relinked):
                command = holders[name]
                key = output_of(command)
                if key not in objects:
                    objects[key] = self.compiled(mutant, command, os.path.join(folder, f"object-{len(objects)}"), text)
                self.linked(name, self.path(key), objects[key], os.path.join(place, name))
            return test_run(self, test, os.path.join(place, self.program(test)), limit)

    def mirror(self, place, left_out, program):
        """A folder like that of the build: links to all that is in it, but for `left_out`. The test's program is a file of its own,
        because its real path is where tests look for others."""
        inner = {os.path.dirname(name) for name in self.links}
        inner |= {parent for name in self.links for parent in parents_of(name)} | {""}
        for folder in inner:
            os.makedirs(os.path.join(place, folder), exist_ok=True)
        for folder in inner:
            for entry in os.scandir(os.path.join(self.build, folder)):
                name = os.path.join(folder, entry.name)
                to = os.path.join(place, name)
                if name in left_out or name in inner:
                    continue
                if entry.is_symlink() and not os.path.isabs(os.readlink(entry.path)):
                    os.symlink(os.readlink(entry.path), to)
                elif name == program:
                    shutil.copy2(entry.path, to)
                elif entry.name == "cmake_install.cmake":
                    text = open(entry.path, encoding="utf-8").read()
                    for moved in self.links:  # with the names that stand for a library, libtowers.so of libtowers.so.0.1.0
                        text = re.sub(re.escape(f"{self.build}/{moved.split('.so')[0]}") + r"(?=[\".])", f"{place}/{moved.split('.so')[0]}", text)
                    open(to, "w", encoding="utf-8").write(text)
                else:
                    os.symlink(entry.path, to)

    def compiled(self, mutant, command, folder, text):
        """The path of a new object from this text of the mutant's file."""
        path = os.path.join(folder, mutant.file if mutant.source != mutant.file else os.path.basename(mutant.file))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, "w", encoding="utf-8").write(text)
        made = os.path.join(folder, os.path.basename(mutant.source)) + ".o"
        own = list(command)
        own[own.index("-o") + 1] = made
        own[own.index("-c") + 1] = path if mutant.source == mutant.file else os.path.join(self.source, mutant.source)
        own += ["-w", "-Wno-error", "-iquote", folder, "-iquote", os.path.join(self.source, os.path.dirname(mutant.source))]
        for flag in ("-MD", "-MT", "-MF"):
            if flag in own:
                at = own.index(flag)
                del own[at : at + (1 if flag == "-MD" else 2)]
        done = subprocess.run(own, cwd=self.build, capture_output=True, text=True)
        if done.returncode:
            raise Broken("does not compile:\n" + done.stderr[-1500:])
        return made

    def linked(self, name, original, new, to):
        """Link a program or library of the build anew, with another object in place of the original, as `to`."""
        own = list(self.links[name])
        own[own.index("-o") + 1] = to
        if original in map(self.path, own):
            own = [new if self.path(word) == original else word for word in own]
        else:
            own.insert(next(i for i, word in enumerate(own) if word.endswith(".a")), new)
        done = subprocess.run(own, cwd=self.build, capture_output=True, text=True)
        if done.returncode:
            raise Broken(f"{name} does not link:\n" + done.stderr[-1500:])


def test_run(build, test, program, limit):
    """PASSED, SKIPPED (77; cmocka's skips count as passed), or how it ended; `limit`: seconds."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TOWERS_")}
    environment.update(OMP_WAIT_POLICY="PASSIVE")
    command = [program]
    if test.startswith("check_"):
        command = ["bash", test_file(build.source, test), build.source, program]
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


def text_of(build, mutant):
    return open(os.path.join(build.source, mutant.file), encoding="utf-8").read()


def try_mutant(build, mutant):
    """("caught" | "survived" | "not run here" | "broken", text)"""
    text, ran = mutated(build.source, mutant), False
    if text is None:
        return "broken", misfit(build.source, mutant)
    try:
        for test in mutant.tests:
            if not build.program(test):
                continue
            usual, seconds = build.baseline(test, mutant, text_of(build, mutant))
            if usual == SKIPPED:
                continue
            if usual != PASSED:
                return "broken", f"{test} fails without a mutant: {usual}"
            ran = True
            ended = build.run(test, mutant, text, HANGS_S + TIMES_SLOWER * seconds)
            if ended not in (PASSED, SKIPPED):
                return "caught", f"{test}: {ended}"
    except Broken as why:
        return "broken", str(why)
    return ("survived" if ran else "not run here"), " ".join(mutant.tests)


def nothing_of(mutants):
    """For every test of the table the first of its mutants that fits, with this test alone."""
    tests = {}
    for mutant in mutants:
        for test in mutant.tests:
            tests.setdefault(test, mutant._replace(title=f"nothing, for {test}", tests=[test]))
    return list(tests.values())


def try_nothing(build, mutant):
    """A file with one comment more: it must survive."""
    test = mutant.tests[0]
    if not build.program(test):
        return "not run here", test
    try:
        ended = build.run(test, mutant, text_of(build, mutant) + "\n/* nothing is wrong */\n", UNCHANGED_S)
    except Broken as why:
        return "broken", str(why)
    return {PASSED: "survived", SKIPPED: "not run here"}.get(ended, "caught"), f"{test}: {ended}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("build", nargs="?")
    parser.add_argument("--check", action="store_true", help="only look whether every mutant's text is there")
    parser.add_argument("--anchor", action="store_true", help="write the table anew, each row by its function and the fewest tokens")
    parser.add_argument("--only", help="mutants whose title or file holds this text")
    parser.add_argument("--null", action="store_true", help="a comment for each test of the table instead, which none may catch")
    parser.add_argument("--diff", help="mutants of the lines that these commits changed, e.g. HEAD~1, instead of the table")
    parser.add_argument("--random", type=int, help="so many of them, chosen at random")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments = parser.parse_args()
    source = os.path.abspath(arguments.source)
    path = os.path.join(source, "tests/mutants.txt")
    mutants = table_read(path)
    stale = [m for m in mutants if mutated(source, m) is None]
    for m in stale:
        print(f"mutant {m.number}, {m.title}: {misfit(source, m)}")
    headers = [m for m in mutants if not m.source.endswith((".c", ".cu"))]
    for m in headers:
        print(f"mutant {m.number}, {m.title}: {m.source} is not compiled by itself; name a source file that includes it: HEADER in FILE")
    nameless = [(m, test) for m in mutants for test in m.tests if test.startswith("check_") and not test_file(source, test)]
    for m, test in nameless:
        print(f"mutant {m.number}, {m.title}: there is no test {test}; several stand one behind the other, with blanks")
    stale += headers + [m for m, _ in nameless]
    if stale:
        sys.exit(f"{len(stale)} of {len(mutants)} mutants do not fit the source: mend tests/mutants.txt")
    if arguments.anchor:
        anchor_all(source, path, mutants)
        return
    if arguments.check:
        print(f"all {len(mutants)} mutants fit the source")
        return
    if arguments.diff:
        mutants = of_diff(source, arguments.diff, mutants)
    flags = flags_of_cpu()
    if arguments.null:
        mutants = nothing_of([m for m in mutants if runs_with(m, flags)])
    if arguments.only:
        mutants = [m for m in mutants if arguments.only in m.title or arguments.only in m.file]
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
        attempt = try_nothing if arguments.null else try_mutant
        for m, (found, text) in zip(mutants, pool.map(lambda m: attempt(build, m), mutants)):
            counts[found] += 1
            print(f"{found:9} {m.number:3}  {m.file}: {m.title} ({text})", flush=True)
    print(", ".join(f"{count} {found}" for found, count in sorted(counts.items())) + f" of {len(mutants)} mutants")
    sys.exit(1 if counts["caught" if arguments.null else "survived"] or counts["broken"] else 0)


if __name__ == "__main__":
    main()
