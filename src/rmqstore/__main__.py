"""``python -m rmqstore``: the command line."""

from rmqstore.cli import main

if __name__ == "__main__":
    main(prog_name="rmqstore")
