"""The comparison, as TroubleShooter's documents have it."""

import troubleshooter as ts

ts.migrator.api_dump_compare("torch_dump", "ms_dump", output_path="compare_result")
