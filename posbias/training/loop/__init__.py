"""What every long run needs: checkpoints that are valid at any moment, exact resumption, files of results."""
