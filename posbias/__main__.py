"""``python -m posbias`` is the command line."""

from posbias.cli import main

main()
