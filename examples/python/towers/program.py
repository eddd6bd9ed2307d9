"""The program `towers` as a process: found, started, its output kept and shown, its errors raised as exceptions. There is no second
engine in Python."""
import atexit
import collections
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading

import numpy

from .errors import CommandError, NotInstalled

KEPT_LINES = 1000  # of what the program says beside its results
OBJECT_LINES = ("predict", "fetch")  # their results are a line for each image or file
running: set = set()  # programs that have not ended


def packaged():
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "towers")


def find():
    """TOWERS_PROGRAM, else the program of this package, else the one in PATH."""
    named = os.environ.get("TOWERS_PROGRAM")
    path = named or (packaged() if os.path.exists(packaged()) else shutil.which("towers"))
    if not path or not shutil.which(path):
        raise NotInstalled(f"there is no program '{path or 'towers'}'" + (" (TOWERS_PROGRAM)" if named else " in PATH") +
                           ". Install a wheel of Towers that contains it (scripts/wheel.sh builds one), or build it and name its file: "
                           "TOWERS_PROGRAM=build/towers")
    return path


def main():
    """The command `towers` of a wheel."""
    if not os.path.exists(packaged()):
        sys.exit("error: this package was installed without the program; install a wheel that scripts/wheel.sh has built")
    os.execv(packaged(), ["towers", *sys.argv[1:]])


def text_of(value):
    """An option's value as it is typed."""
    if isinstance(value, (list, tuple, range, numpy.ndarray)):
        return ",".join(text_of(one) for one in value)
    return os.fspath(value) if isinstance(value, (str, os.PathLike)) else repr(float(value)) if isinstance(value, float) else str(value)


def typed(options):
    """Keywords as words of the command line."""
    words = []
    for keyword, value in options.items():
        flag = keyword.replace("_", "-")
        if isinstance(value, (bool, numpy.bool_)):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            words.append(f"--{flag}={text_of(value)}")
    return words


class Program:
    """A started program. It has a session of its own, so that Ctrl-C reaches Python alone, which passes it on."""

    def __init__(self, words, show, environment=None):
        self.words, self.results, self.lines = words, [], collections.deque(maxlen=KEPT_LINES)
        self.run_directory, self._named, self._asked_to_stop = None, threading.Event(), False
        self._process = subprocess.Popen([find(), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                         text=True, encoding="utf-8", errors="replace", start_new_session=True,
                                         env={**os.environ, **environment} if environment else None)
        self._readers = [threading.Thread(target=self._read_results, daemon=True),
                         threading.Thread(target=self._read_lines, args=(show,), daemon=True)]
        running.add(self)
        for reader in self._readers:
            reader.start()

    def _read_results(self):
        self.results.extend(self._process.stdout)

    def _read_lines(self, show):
        for line in self._process.stderr:
            self.lines.append(line)
            found = re.match(r"run directory +(.*)\n", line)
            if found and not self.run_directory:
                self.run_directory = found[1]
                self._named.set()
            if show:
                sys.stderr.write(line)
                sys.stderr.flush()
        self._named.set()

    @property
    def ended(self):
        return self._process.poll() is not None

    def wait_for_directory(self):
        """Until the run has a directory, or has ended."""
        self._wait_for(self._named.wait)

    def _wait_for(self, waits):
        """The first Ctrl-C lets the program save and end, the second one lets it end at once; then it is the caller's."""
        interrupted = None
        while True:
            try:
                waits()
                break
            except KeyboardInterrupt as interrupt:
                interrupted = interrupt
                self._signal(signal.SIGINT)
                waits = self._end
        if interrupted:
            raise interrupted

    def _signal(self, number):
        if not self.ended:
            self._process.send_signal(number)

    def _end(self):
        code = self._process.wait()
        for reader in self._readers:
            reader.join()
        running.discard(self)
        return code

    def wait(self):
        """Its results as text. CommandError unless it ended with 0, or was asked to stop and has done so."""
        self._wait_for(self._end)
        code = self._process.returncode
        code = 128 - code if code < 0 else code
        if code and not (self._asked_to_stop and self._has_stopped(code)):
            raise self._error(code)
        return "".join(self.results)

    def _has_stopped(self, code):
        """Whether a training ended with this code because of a signal, after it had saved, or before it had a run."""
        if not self.run_directory:
            return code == 128 + signal.SIGTERM
        try:
            with open(os.path.join(self.run_directory, "outcome.json"), encoding="utf-8") as file:
                outcome = json.load(file)
        except FileNotFoundError:
            return False
        return outcome["outcome"] == "stopped" and outcome["exit_code"] == code

    def _error(self, code):
        from .commands import EXITS  # which imports this file

        lines = list(self.lines)
        first = max((i for i, line in enumerate(lines) if line.startswith("error: ")), default=None)
        meaning = EXITS.get(code) or (f"ended by signal {code - 128} ({signal.Signals(code - 128).name})" if 128 < code < 160 else "unknown")
        text = "".join(lines[first:]).rstrip()[len("error: "):] if first is not None else meaning
        return CommandError(text, code, meaning, ["towers", *self.words], "".join(lines))

    def _ask_to_stop(self):
        if not self._asked_to_stop:  # a second signal would end it at once
            self._asked_to_stop = True
            self._signal(signal.SIGTERM)

    def stop(self):
        """It saves a checkpoint and ends, which is waited for. CommandError if it fails instead, or had failed."""
        self._ask_to_stop()
        self.wait()


@atexit.register
def stop_all():
    """No program goes on without the Python that started it. All save beside each other; Ctrl-C ends all of them at once."""
    while running:
        try:
            for program in list(running):
                program._ask_to_stop()
            for program in list(running):
                program._end()
        except KeyboardInterrupt:
            for program in list(running):
                program._signal(signal.SIGINT)


def parsed(name, text):
    """The results of a command: an object, or a list of the objects of its lines."""
    if name in OBJECT_LINES:
        return [json.loads(line) for line in text.splitlines()]
    return json.loads(text) if text.strip() else None


def only_says(given):
    """Whether the command only prints what it would do, for people."""
    return bool(given.get("dry_run") or given.get("print_config"))


def has_json(name, arguments, given):
    """Whether the command has JSON: info of files of weights alone, on demand; data of its first word, info."""
    return name != "info" and not (name == "data" and "info" not in arguments[:1]) and not given.get("csv") and not only_says(given)


def command(name, given):
    """Runs a command for its function in commands.py, whose arguments are `given`."""
    from .run import Run  # which knows programs

    call = {key: given.pop(key) for key in ("arguments", "show", "wait", "environment") if key in given}
    words = [name, *map(text_of, call["arguments"])]
    if name == "train":
        show = call["show"] and not given.pop("quiet")  # the program itself is never quiet: it says where the run is
        if only_says(given):
            return Program([*words, *typed(given)], show, call["environment"]).wait()
        program = Program([*words, *typed(given), "--json"], show, call["environment"])
        return Run._started(program, call["wait"])
    wants_json = given.get("json", False)
    if wants_json is None:
        wants_json = given["json"] = has_json(name, call["arguments"], given)
    text = Program([*words, *typed({key: value for key, value in given.items() if (key, value) != ("json", False)})], call["show"],
                   call["environment"]).wait()
    return parsed(name, text) if wants_json else text
