// Has an identity, but exports no descriptor.
#include "espalier/abi.hpp"

extern "C" __attribute__((section("espalier_id"), used)) constinit const char sdk_identity[] =
    "espalier-plugin\n" ESPALIER_ABI_ID "\nsdk_no_entry\n1.0.0";
