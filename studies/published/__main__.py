"""``python -m studies.published``."""

from posbias.cli import main

main(groups=["studies.published.commands"], name="python -m studies.published")
