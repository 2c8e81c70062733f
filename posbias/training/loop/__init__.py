"""What every long run needs: checkpoints that are whole at any moment, exact resumption, files of results."""
