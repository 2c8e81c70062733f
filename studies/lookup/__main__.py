"""``python -m studies.lookup train``."""

from posbias.cli import main

if __name__ == "__main__":
    main(groups=["studies.lookup.commands"], name="python -m studies.lookup")
