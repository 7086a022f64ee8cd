"""`python -m twintrace` is the `twintrace` command."""

from .cli import main

if __name__ == "__main__":
    main()
