"""The report from published tables: `collect` reads the `sections`, `page` and `output` render them."""
