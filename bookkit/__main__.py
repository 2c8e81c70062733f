"""``python -m bookkit``: run chapters, build the pages, and what belongs to them."""

from posbias.cli import main

main(groups=["bookkit.commands"], name="python -m bookkit")
