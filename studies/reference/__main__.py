"""``python -m studies.reference``."""

from posbias.cli import main

main(groups=["studies.reference.commands"], name="python -m studies.reference")
