"""Towers for Python: train with the program `towers`, read what its runs have recorded, classify images with libtowers."""
from . import commands
from .commands import *  # noqa: F403 (a function for each command)
from .errors import CommandError, LibraryError, NotInstalled, TowersError
from .network import Network, Prediction, version
from .run import Records, Run

for _function, (_word, _arguments, _summary) in commands.COMMANDS.items():
    _function.__doc__ = f"towers {_word} {_arguments}: {_summary}.\n\n" + "\n".join(
        f"{keyword}: {commands.OPTIONS[keyword]}" for keyword in _function.__kwdefaults__ or () if keyword in commands.OPTIONS)

__version__ = commands.VERSION
__all__ = ["CommandError", "LibraryError", "Network", "NotInstalled", "Prediction", "Records", "Run", "TowersError", "version",
           *(function.__name__ for function in commands.COMMANDS)]
