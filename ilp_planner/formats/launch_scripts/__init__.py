"""The part of the shell that launch scripts are written in: read, never run."""
