"""How sure the numbers are: coverage of intervals."""
