"""The clock that windows are counted with."""

import sys
import time

if sys.platform == "linux":

    def now_ns() -> int:
        """Nanoseconds of a clock that also runs while the machine is suspended."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

else:

    def now_ns() -> int:
        """Nanoseconds of the best clock of this system. On macOS it runs in suspend, too."""
        return time.monotonic_ns()
