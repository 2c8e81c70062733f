"""Which of several documents a language model uses, whether it is found, and whether its place is the reason."""
