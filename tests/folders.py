"""Where tests that write thousands of small files put them."""

import os

MEMORY = "/dev/shm"  # noqa: S108 - a folder of one's own is made in it
FILES = MEMORY if os.access(MEMORY, os.W_OK) else None
