"""The papers' propositions as functions: depth, graphs, encodings."""
