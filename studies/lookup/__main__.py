"""``python -m studies.lookup``."""

from posbias.cli import main

main(groups=["studies.lookup.commands"], name="python -m studies.lookup")
