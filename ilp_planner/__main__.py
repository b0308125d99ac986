"""`python -m ilp_planner` is `ilp-plan`."""

from ilp_planner.faces.cli.main import main

if __name__ == "__main__":
    main()
