"""What the chapters ask, a folder for each question; never in the wheel."""
