"""What was asked for, and the files that it is read from."""
