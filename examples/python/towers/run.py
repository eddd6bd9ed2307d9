"""A run: what it has recorded, as columns of NumPy; and, if it was started here, its program."""
from __future__ import annotations

import csv
import json
import os
import re
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping

import numpy

from .errors import CommandError

if TYPE_CHECKING:
    from .network import Network
    from .program import Program


class Records(Mapping[str, numpy.ndarray]):
    """Rows of a file as columns: records["mean_loss"] is an array with an element for each row.

    - Numbers are int64, float64 or bool, words are str. What a row lacks is masked (numpy.ma); a column without gaps is a plain
      array. A number that is not finite, which files have as null, is NaN.
    - A list for each row is an array [rows][elements], masked behind the end of shorter lists. In a column of losses of towers an
      element belongs to the tower of its number, and that of a tower without samples is masked.
    - The numbers within an object have names with a point: records["terms.penalty"].
    """

    def __init__(self, rows: Iterable[dict[str, Any]]) -> None:
        self._rows = [flat(row) for row in rows]
        self._names = list(dict.fromkeys(name for row in self._rows for name in row))
        self._made: dict[str, numpy.ndarray] = {}

    def __getitem__(self, name: str) -> numpy.ndarray:
        if name not in self._made:
            if name not in self._names:
                raise KeyError(f"no row has '{name}'; there are: {', '.join(self._names)}")
            self._made[name] = column([row.get(name, ABSENT) for row in self._rows])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        """The number of columns, as of any mapping; `rows` is that of rows."""
        return len(self._names)

    @property
    def rows(self) -> int:
        return len(self._rows)

    def __repr__(self):
        return f"<Records: {self.rows} rows of {', '.join(self._names)}>"


ABSENT = object()


def flat(row):
    """Objects within a row as names with a point, and losses of towers in their places."""
    found = {}
    for key, value in row.items():
        if isinstance(value, dict):
            found.update({f"{key}.{inner}": of for inner, of in value.items()})
        else:
            found[key] = value
    counts = row.get("tower_count")
    losses = row.get("tower_loss")
    if counts and losses is not None and len(losses) < len(counts) and len(losses) == sum(n > 0 for n in counts):
        left = iter(losses)
        found["tower_loss"] = [next(left) if n > 0 else ABSENT for n in counts]
    return found


def column(values):
    if not any(isinstance(value, list) for value in values):
        return array(values, (len(values),))
    most = max(len(value) for value in values if isinstance(value, list))
    lists = [value if isinstance(value, list) else [] for value in values]
    return array([one for of in lists for one in of + [ABSENT] * (most - len(of))], (len(values), most))


def array(values, shape):
    """`values` as an array of the narrowest kind that holds all of them."""
    there = [value for value in values if value is not ABSENT]
    if any(isinstance(value, str) for value in there):
        kind, empty = numpy.str_, ""
        there = ["" if value is None else str(value) for value in there]
    elif there and all(isinstance(value, bool) for value in there):
        kind, empty = numpy.bool_, False
    elif there and all(isinstance(value, int) for value in there):
        kind, empty = numpy.int64, 0
    else:
        kind, empty = numpy.float64, numpy.nan
        there = [numpy.nan if value is None else value for value in there]
    mask = numpy.array([value is ABSENT for value in values], bool).reshape(shape)
    rest = iter(there)
    data = numpy.array([empty if value is ABSENT else next(rest) for value in values], kind).reshape(shape)
    return numpy.ma.masked_array(data, mask) if mask.any() else data


def number(text):
    """A field of a table: a number, the word that it is, or ABSENT for an empty one."""
    if text == "":
        return ABSENT
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def scalar(text):
    """A value of args.yaml, which towers --print-config writes: a quoted text, true or false, a number, or a word."""
    if text.startswith('"'):
        return json.loads(re.sub(r"\\U([0-9A-F]{8})", lambda found: json.dumps(chr(int(found[1], 16)))[1:-1], text))
    found = {"true": True, "false": False}.get(text, number(text))
    return "" if found is ABSENT else found


class Run:
    """A directory that a training has written. All files are read anew at each access, so that a run may still be going on; it plots
    nothing. Wherever a path is wanted, towers.evaluate(run), it is one."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._program: Program | None = None
        self.result: dict[str, Any] | None = None
        self.path: str = os.fspath(path)
        if not os.path.isfile(os.path.join(self.path, "args.yaml")):
            raise FileNotFoundError(f"'{self.path}' is no run directory: it has no args.yaml")

    @classmethod
    def _started(cls, program, wait):
        run = cls.__new__(cls)
        run._program, run.result, run.path = program, None, None
        program.wait_for_directory()
        run.path = program.run_directory
        if wait or program.ended:
            run.wait()
        return run

    # ---- its program

    @property
    def running(self) -> bool:
        """Whether the program that was started here still trains."""
        return self._program is not None and not self._program.ended

    def wait(self) -> Run:
        """Until the training ends; CommandError if it fails. Ctrl-C lets it save and end, and a second one ends it at once."""
        if self._program:
            text = self._program.wait()
            self.result = json.loads(text) if text.strip().startswith("{") else None
            if self.result:
                self.path = self.result["run_dir"]
        return self

    def stop(self) -> None:
        """Lets the training save a checkpoint and end, and waits for it; resume=run.path continues. CommandError if it fails, or has
        failed."""
        if self._program:
            self._program.stop()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, *about: object) -> None:
        try:
            self.stop()
        except CommandError:
            if kind is None:  # else that exception says more
                raise

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self):
        return f"<Run {self.path}{', running' if self.running else ''}>"

    # ---- its records

    def _file(self, name):
        return os.path.join(self.path, name)

    def _json(self, name):
        try:
            with open(self._file(name), encoding="utf-8") as file:
                return json.load(file)
        except FileNotFoundError:
            return None

    @property
    def steps(self) -> Records:
        """metrics.jsonl: a row for each step."""
        with open(self._file("metrics.jsonl"), encoding="utf-8") as file:
            return Records([json.loads(line) for line in file if line.endswith("\n")])  # the last one may be half written

    @property
    def epochs(self) -> Records:
        """results.csv: a row for each epoch."""
        with open(self._file("results.csv"), encoding="utf-8", newline="") as file:
            return Records([{key: number(text or "") for key, text in row.items()} for row in csv.DictReader(file)])

    @property
    def settings(self) -> dict[str, Any]:
        """args.yaml: every option that the run has, by its keyword; None: not set."""
        found: dict[str, Any] = {}
        with open(self._file("args.yaml"), encoding="utf-8") as file:
            for line in file:
                unset = re.match(r"# ([a-z0-9-]+): not set\n", line)
                given = re.match(r'([a-z0-9-]+): ("(?:\\.|[^"\\])*"|[^#]*?) *(?:# from .*)?\n', line)
                if unset:
                    found[unset[1].replace("-", "_")] = None
                elif given:
                    found[given[1].replace("-", "_")] = scalar(given[2])
        return found

    @property
    def outcome(self) -> dict[str, Any] | None:
        """outcome.json: how it ended; None while it goes on, or if it was killed."""
        return self._json("outcome.json")

    @property
    def environment(self) -> dict[str, Any] | None:
        """env.json: program, machine and data."""
        return self._json("env.json")

    @property
    def best(self) -> str:
        """The file of its best weights."""
        return self._file("best.safetensors")

    def network(self, **options: Any) -> Network:
        """Its best weights as a Network."""
        from .network import Network

        return Network(self.path, **options)
