"""`python -m bench` is the `ctxbench` command."""

from bench.cli.main import main

if __name__ == "__main__":
    main()
