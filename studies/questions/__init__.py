"""Liu et al.'s questions about passages of Wikipedia, which a search returns: is the middle lost there, too."""
