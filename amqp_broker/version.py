"""The version of the package, also for the pyproject: to ask the installed package for it takes 20 ms."""

from typing import Final

VERSION: Final = "0.1.0"
