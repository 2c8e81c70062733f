"""A reference model and texts so small that training takes a moment, in place of the real ones."""

from studies.reference import models, tokens
from studies.reference.models import Reference
from studies.reference.texts import Document

SAYINGS = [f"def f{k}(x):\n    return x + {k}  # line {k}, naïve\n" * (2 + k % 5) for k in range(40)]
TINY = Reference("tiny", "bloom", 2, 16, 2, steps=6, batch_size=2, length=12)


def documents(part):
    """Return short texts to train on, or a long one to be judged by."""
    return [Document("f.py", text) for text in (SAYINGS if part == "train" else ["".join(SAYINGS)])]


def install(patch):
    """Let ``python -m studies.reference train`` know the model, and read the texts."""
    patch.setattr(tokens, "documents", documents)
    patch.setitem(models.REFERENCES, "tiny", TINY)
