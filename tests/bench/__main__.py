"""``make bench``."""

import uvloop

from tests.bench.hot_paths import main

if __name__ == "__main__":
    uvloop.run(main())
