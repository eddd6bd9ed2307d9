"""What goes wrong, as exceptions."""


class TowersError(Exception):
    """Any error of this package; its text is the program's or the library's own: what, expected, found, remedy."""


class NotInstalled(TowersError, OSError):
    """The program `towers`, or libtowers, was not found."""


class CommandError(TowersError):
    """The program ended with an error. `code`: its exit code; `meaning`: what such a code means; `command`: its arguments;
    `output`: the last lines that it printed beside its results."""

    def __init__(self, text, code, meaning, command, output):
        super().__init__(text)
        self.code, self.meaning, self.command, self.output = code, meaning, command, output


class LibraryError(TowersError):
    """A call of libtowers failed. `name`: as in towers.h, for example TOWERS_FORMAT; `results`: of classify, with rows of NaN for
    damaged images, else None."""

    def __init__(self, text, name, results=None):
        super().__init__(text)
        self.name, self.results = name, results
