"""The clock that windows are counted with."""

import sys
import time
from functools import partial
from typing import Callable

#: Nanoseconds of a clock that also runs while the machine is suspended: on other systems than Linux the best that they
#: have, which does so on macOS. A partial and not a function, because it is called four times for each lock.
now_ns: Callable[[], int] = (
    partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic_ns
)
