"""What is proved: infinite depth, masks as graphs, positional encodings, LayerNorm, absolute position."""
