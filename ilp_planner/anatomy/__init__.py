"""What each rank of a training job holds and sends: for analysis, planning and export alike."""
