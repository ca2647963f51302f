"""From published tables to a report: `collect` reads the `sections`, `page` and `output` show them."""
