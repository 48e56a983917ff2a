import io

from rich.console import Console

from fedfeast.presentation.measure_tables import print_measured

MEASURED = {
    "recipe": "digits",
    "method": "feast",
    "device": "cpu",
    "threads": 2,
    "runtime": "onnxruntime 1.31",
    "peak_memory_megabytes": 123.4,
    "variants": [
        {
            "macs": 128_320,
            "parameters": 7730,
            "milliseconds": 0.159,
            "fastest_milliseconds": 0.15,
            "slowest_milliseconds": 0.2,
            "macs_per_second": 8.07e8,
        }
    ],
    "suggestion": {"target_milliseconds": 3.0, "budget_macs": 128_320, "served_macs": 128_320},
}


def test_the_table_says_what_the_device_affords() -> None:
    stream = io.StringIO()
    print_measured(MEASURED, Console(file=stream, width=110))
    text = stream.getvalue()
    for part in (
        "cpu, 2 threads, onnxruntime 1.31",
        "7,730",
        "0.159",
        "0.15 to 0.2",
        "807M",
        "123 MB",
        "budget-macs=128320",
        "for 3 ms",
    ):
        assert part in text
