"""WHERE WORK RUNS: tasks that do not depend on each other, on what there is to run them."""
