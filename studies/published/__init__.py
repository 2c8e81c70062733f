"""Tables and figures of the source paper against what ships of the authors' numbers."""
