"""What the commands say and do."""
