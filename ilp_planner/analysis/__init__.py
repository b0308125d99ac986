"""Memory and messages of a training job before its launch, and questions about plans."""
