"""The document's comparison of the two dumps."""

import troubleshooter as ts

ts.migrator.api_dump_compare("ms_dump", "torch_dump", output_path="compare_result")
