"""One page on one measurement."""
