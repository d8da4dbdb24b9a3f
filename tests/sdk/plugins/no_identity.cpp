// A shared library like any other.
extern "C" __attribute__((visibility("default"))) int sdk_answer() { return 42; }
