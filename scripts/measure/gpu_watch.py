"""What the driver says of the first GPU while programs run there: clocks, power, and why a clock is lower than it could be.

NVML is asked in this process every 200 ms, by a thread: a start of nvidia-smi for each question would cost the programs more than what
it tells. Where there is no NVML, or it does not say, rows are without these numbers.
"""

import atexit
import ctypes
import os
import statistics
import threading
import time

EVERY = 0.2  # seconds
LOAD = 0.75  # of the highest power of a run: below it the program starts, reads or ends
SM, MEMORY = 1, 2  # nvmlClockType_t
# nvmlClocksEventReasons that slow down; 1 (idle), 2 and 256 (settings of the clock) do not
SLOWED = ((0x04, "power"), (0x08, "hardware"), (0x10, "sync boost"), (0x20, "heat"), (0x40, "heat, by hardware"), (0x80, "power brake"))


def first_gpu():
    """Of those that programs see; a number of the driver's, or the first."""
    word = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    return int(word) if word.isdigit() else 0


class Nvml:
    """Raises OSError if there is no driver, or it does not know the GPU."""

    def __init__(self):
        self.library, self.device = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
        self.call("nvmlInit_v2")
        atexit.register(self.call, "nvmlShutdown")
        self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(first_gpu()), ctypes.byref(self.device))

    def call(self, name, *words):
        try:
            code = getattr(self.library, name)(*words)
        except AttributeError as error:
            raise OSError(f"NVML has no {name}") from error
        if code:
            raise OSError(f"{name}: NVML's code {code}")

    def ask(self, name, kind, *words):
        """None: it does not say."""
        value = kind()
        try:
            self.call(name, self.device, *words, ctypes.byref(value))
        except OSError:
            return None
        return value.value

    def sample(self):
        milliwatts = self.ask("nvmlDeviceGetPowerUsage", ctypes.c_uint)
        reasons = self.ask("nvmlDeviceGetCurrentClocksEventReasons", ctypes.c_ulonglong)
        if reasons is None:  # the name of drivers before 535
            reasons = self.ask("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong)
        clocks = [self.ask("nvmlDeviceGetClockInfo", ctypes.c_uint, ctypes.c_uint(kind)) for kind in (SM, MEMORY)]
        return time.monotonic(), *clocks, None if milliwatts is None else milliwatts / 1000, reasons


class Watch:
    """Samples from its making to the end of this process."""

    def __init__(self):
        self.samples, self.why = [], ""
        try:
            self.nvml = Nvml()
        except OSError as error:
            self.nvml, self.why = None, str(error)
            return
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            self.samples.append(self.nvml.sample())
            time.sleep(EVERY)

    def between(self, begun, ended):
        """Under load, of the samples of this time: medians of the clocks, the mean power, and what slowed it down in which share of the
        samples. {}: there are none."""
        seen = [sample for sample in self.samples if begun <= sample[0] <= ended]
        most = max((watts for _, _, _, watts, _ in seen if watts is not None), default=0)
        seen = [sample for sample in seen if sample[3] is None or sample[3] >= LOAD * most]
        if not seen:
            return {}
        row = {"samples": len(seen)}
        for key, column, middle in (("sm_mhz", 1, statistics.median), ("memory_mhz", 2, statistics.median), ("load_watts", 3, statistics.mean)):
            values = [sample[column] for sample in seen if sample[column] is not None]
            if values:
                row[key] = round(middle(values))
        masks = [sample[4] for sample in seen if sample[4] is not None]
        if masks:
            row["slowed"] = slowed_text(masks)
        return row


def slowed_text(masks):
    """'no', or 'power 93 %, heat 7 %': of the samples."""
    shares = [(name, sum(mask & bit != 0 for mask in masks) / len(masks)) for bit, name in SLOWED]
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares if share) or "no"
