"""Any models, of a hub or of this machine, in one table and its figure."""
