"""Memory and messages of each rank of a training job: for analysis, planning and export alike."""
