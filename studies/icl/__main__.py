"""``python -m studies.icl train``."""

from posbias.cli import main

if __name__ == "__main__":
    main(groups=["studies.icl.commands"], name="python -m studies.icl")
