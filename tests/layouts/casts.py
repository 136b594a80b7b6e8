#!/usr/bin/env python3
"""Writes casts.txt: what NumPy's astype makes of chosen values, between all element types of the crate.

    python3 -m pip install numpy==2.4.6 ml_dtypes==0.7.0
    python3 casts.py > casts.txt

The table in this folder is of those versions, on x86-64. A block begins with a type's name and the bits of its values in
hexadecimal; its other lines have a type's name and the bits of what each value becomes. `nan` is any NaN. `?` is where
there is nothing to hold against: a float that is NaN, infinite or out of range for an integer, of which C, and so NumPy,
leaves open what becomes (NumPy's results differ between processors, and between one element and many); and what ml_dtypes
rounds to bfloat16 twice, by way of float32, which loses the nearest value.
"""

import warnings

import ml_dtypes
import numpy as np

TYPES = {
    name: np.dtype(getattr(ml_dtypes, name) if name == "bfloat16" else name)
    for name in (
        "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64".split()
    )
}
HALVES = ("float16", "bfloat16")

# Ends of types, and integers of which float16, bfloat16, float32 and float64 lie on either side, halfway or just beside.
SIZES = [0, 1, 2, 3, 127, 128, 255, 256, 257, 259, 2049, 2051, 32767, 32768, 65504, 65519, 65520, 65535, 65536]
SIZES += [2**24 + 1, 2**24 + 3, 2**31 - 1, 2**31, 2**32 - 1, 2**40 + 2**16, 2**53 + 1, 2**53 + 3, 2**60 + 2**36 + 1]
SIZES += [2**63 - 1, 2**63, 2**63 + 2**55 + 1, 2**64 - 1]
INTEGERS = SIZES + [-size for size in SIZES]

STEP = 2.0**-40
FRACTIONS = [0.0, 0.1, 0.5, 0.9, 1.0, 1.5, 2.5, 127.9, 128.9, 255.9, 300.7, 32767.5, 65504.0, 65519.996, 65520.0, 65535.9]
# Halfway between two values of float16, bfloat16 and float32, and just above; their least values, and what is below.
FRACTIONS += [1 + 2.0**-bits + above for bits in (8, 11, 24) for above in (0, STEP)]
FRACTIONS += [1 + 3 * 2.0**-bits for bits in (8, 11, 24)]
FRACTIONS += [2.0**least * times for least in (-24, -133, -149) for times in (0.25, 0.5, 0.5 + STEP, 0.75, 1, 1.5, 2.5)]
FRACTIONS += [2.0**-14 - 2.0**-25, 2.0**-126 - 2.0**-134, 2.0**-126 - 2.0**-150]
FRACTIONS += [2.0**31 - 128, 2.0**31 - 0.5, 2.0**31, 2.0**32 - 0.5, 2.0**53 - 1, 2.0**62, 2.0**63 - 1024, 2.0**63]
FRACTIONS += [2.0**64 - 2048, 3.39e38, 3.3961e38, 3.4028235e38, 3.4028236e38, 1e300, 1e-300, 5e-324, np.inf]
FLOATS = FRACTIONS + [-value for value in FRACTIONS] + [np.nan]


def values(name):
    """Distinct values of a type."""
    dtype = TYPES[name]
    if name == "bool":
        return np.array([False, True])
    if dtype.kind in "ui":
        info = np.iinfo(dtype)
        fit = [value for value in INTEGERS if info.min <= value <= info.max] + [info.min]
        return np.array(sorted(set(fit)), dtype)
    all_of_it = np.array(FLOATS, np.float64).astype(dtype)
    _, first = np.unique(bits(all_of_it), return_index=True)
    return all_of_it[np.sort(first)]


def bits(array):
    return array.view(f"u{array.dtype.itemsize}")


def is_open(value, source, target):
    """Whether there is nothing to hold a value's cast against."""
    if TYPES[target].kind in "ui" and TYPES[source].kind not in "uib":
        info = np.iinfo(TYPES[target])
        return not np.isfinite(value) or not info.min <= int(value) <= info.max
    if target == "bfloat16" and source not in HALVES and np.isfinite(np.float64(value)):
        narrow = np.float32(value)
        # Exact comparisons: both are integers, or floats.
        exact = int(narrow) == int(value) if TYPES[source].kind in "ui" and np.isfinite(narrow) else narrow == value
        return not exact
    return False


def shown(value, source, target, becomes):
    if is_open(value, source, target):
        return "?"
    if TYPES[target].kind not in "uib" and np.isnan(np.float64(becomes)):
        return "nan"
    return f"{int(bits(np.array([becomes]))[0]):x}"


def main():
    warnings.simplefilter("ignore")
    for source in TYPES:
        of = values(source)
        print(source, *(f"{int(number):x}" for number in bits(of)))
        for target, dtype in TYPES.items():
            if target != source:
                made = of.astype(dtype)
                print(f"  {target}", *(shown(*pair) for pair in zip(of, [source] * len(of), [target] * len(of), made)))


main()
