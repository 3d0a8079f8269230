# A release has no fuzzer.
