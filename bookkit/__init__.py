"""The pipeline of the book: chapters, runner, records, claims ledger and pages."""
