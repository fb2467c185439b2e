"""Command line as ``python -m fedkernel``."""

from fedkernel.experiments.cli import main

if __name__ == "__main__":
    main()
