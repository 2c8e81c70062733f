"""The book: its chapters, the one runner that executes them, its records and its pages.

Nothing outside this package imports it, the command line excepted.
"""
