"""Lookup by place: key-value and copying tasks for any model."""
