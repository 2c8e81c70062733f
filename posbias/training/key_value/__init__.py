"""Decoders trained to find the value of a key in their prompt, and how soon they find it at each place."""
