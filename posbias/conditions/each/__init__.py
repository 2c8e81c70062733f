"""Conditions, a file each: the name of a file is that of its condition."""
