"""`python -m ilp_planner` is `ilp-plan`."""

from ilp_planner.cli.main import main

if __name__ == "__main__":
    main()
