"""A report on one measurement: a single HTML file that needs no other, from what was asked to the data."""
