# The fuzzer of the fault campaigns.

from rmqstore._native.base.java_string cimport java_hash_code

include "_native/fuzz/fuzz_input.pxi"
include "_native/fuzz/fuzz_targets.pxi"
include "_native/fuzz/fuzz_arrow.pxi"
include "_native/fuzz/fuzz_filter.pxi"
include "_native/fuzz/fuzz_frames.pxi"
include "_native/fuzz/fuzz.pxi"
