"""Lookup by place: documents and pairs of keys and values, asked of any model."""
