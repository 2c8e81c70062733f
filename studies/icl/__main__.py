"""``python -m studies.icl``."""

from posbias.cli import main

main(groups=["studies.icl.commands"], name="python -m studies.icl")
