"""``python -m studies``."""

from posbias.cli import main

main(groups=["studies.commands"], name="python -m studies")
